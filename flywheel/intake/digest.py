"""The digest of what intake has stored: content only, so that two ways of arriving at the same rows agree."""

from __future__ import annotations

from datetime import UTC, datetime

from flywheel.store.digests import digest, rows_digest
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import read_rows

# Where a record was read, and when: the same record may reach two homes by different ways.
_PLACE = frozenset({"source", "source_offset"})
_ARRIVAL = frozenset({"ingested_at", "origin", "source_offset"})


def intake_digest(home: Home, registry: Registry, task: str) -> str:
    """Digest over the interactions and feedback of a task by id; order, chunks, files and intake times do not count.

    Keyed user ids and the audit draw do, so that only homes with the same ``secret.key`` can agree.
    """
    tables = {
        "interactions": ("interaction_id", _PLACE),
        "feedback": ("feedback_id", _ARRIVAL),
    }
    return digest(
        {
            table: rows_digest(
                (row[key], {name: _plain(value) for name, value in row.items() if name not in left_out})
                for row in read_rows(home, registry, table, task, key)
            )
            for table, (key, left_out) in tables.items()
        }
    )


def _plain(value: object) -> object:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
