"""Feedback while no gateway runs: the same checks, the same record, straight into the log under a boot of its own."""

from __future__ import annotations

from typing import Any

from flywheel.config import Config
from flywheel.gateway.feedback import parse_feedback
from flywheel.store.home import Home
from flywheel.store.wal import WriteAheadLog


def record_offline(config: Config, home: Home, body: dict[str, Any]) -> str:
    """Put one piece of feedback on disk and return its id.

    Args:
        body: what ``POST /v1/feedback`` takes.

    Raises RequestError for a body that is wrong, StoreError when the log cannot be written.
    """
    (record,) = parse_feedback(body, config)
    with WriteAheadLog(home.log) as log:
        log.append(record).result()
    return str(record["id"])
