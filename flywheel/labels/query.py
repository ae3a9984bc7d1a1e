"""What people who label look at: the interactions of the audit sample that nobody has judged yet."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from flywheel.labels.evidence import STRONG, read_evidence
from flywheel.labels.targets import answer_text, feedback_by_target
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import query


def audit_queue(
    home: Home, registry: Registry, task: str, limit: int, *, trusted: Collection[str] = STRONG
) -> list[dict[str, Any]]:
    """Audited interactions without trusted evidence, the oldest first: what a reviewer should label next.

    Args:
        trusted: whose labels may judge, as in ``labels.gate_labels``.

    Immature feedback counts as well: a reviewer is not asked twice while the label waits.

    Returns rows ``{interaction_id, messages, answer}`` with the messages as a list, at most ``limit``.
    """
    judged = [
        target.interaction_id
        for target, rows in feedback_by_target(home, registry, task)
        if any(item.source in trusted for item in read_evidence(rows, target.answer))
    ]
    sql = (
        "SELECT interaction_id, request, response FROM rows"
        " WHERE audit AND status = 'ok' AND interaction_id NOT IN (SELECT unnest($1))"
        " ORDER BY ts, interaction_id LIMIT $2"
    )
    return [
        {
            "interaction_id": row["interaction_id"],
            "messages": json.loads(row["request"])["messages"],
            "answer": answer_text(json.loads(row["response"])),
        }
        for row in query(home, registry, "interactions", task, sql, [judged, limit]).to_pylist()
    ]
