"""Days of the interactions table: which of them a run wrote to, and what they hold."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime
from typing import Any

import sqlalchemy as sa

from flywheel.store.digests import digest
from flywheel.store.registry import Registry, Transaction, schema

TABLES = ("interactions", "feedback")


def written_days(registry: Registry, task: str) -> list[str]:
    """The days, ``YYYY-MM-DD``, whose calls or feedback this registry's actor has written, in order."""
    table = schema.segments
    wanted = sa.select(table.c.day).distinct().where(_of(task), table.c.actor == registry.actor)
    with registry.read() as tx:
        return sorted(row["day"] for row in tx.rows(wanted))


def last_read_day(registry: Registry, task: str, source: str) -> date | None:
    """The day, in UTC, on which records of a source were last taken in; None when none ever were."""
    table = schema.sources
    with registry.read() as tx:
        at = tx.scalar(sa.select(table.c.at).where(table.c.task == task, table.c.source == source))
    return datetime.fromisoformat(at).astimezone(UTC).date() if at else None


def rows_by_day(registry: Registry, task: str, days: Collection[str] | None = None) -> dict[str, dict[str, int]]:
    """Rows of each table by day, for the days that have any.

    Args:
        days: only these; None for all.
    """
    found: dict[str, dict[str, int]] = {}
    with registry.read() as tx:
        for row in _segments(tx, task, days):
            counts = found.setdefault(row["day"], dict.fromkeys(TABLES, 0))
            counts[row["table"]] += row["rows"]
    return found


def content_digest(registry: Registry, task: str, days: Collection[str] | None = None) -> str:
    """Digest over the rows of all days, or of these."""
    found: dict[str, list[str]] = {name: [] for name in TABLES}
    with registry.read() as tx:
        for row in _segments(tx, task, days):
            found[row["table"]].append(row["digest"])
    return digest({name: sorted(digests) for name, digests in found.items()})


def _segments(tx: Transaction, task: str, days: Collection[str] | None) -> list[dict[str, Any]]:
    rows = tx.rows(sa.select(schema.segments).where(_of(task)).order_by(schema.segments.c.path))
    return [row for row in rows if days is None or row["day"] in days]


def _of(task: str) -> sa.ColumnElement[bool]:
    table = schema.segments
    return sa.and_(table.c.task == task, table.c.table.in_(TABLES))
