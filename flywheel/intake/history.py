"""What every intake run made of every source, from the counts that its chunks left in the registry."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import sqlalchemy as sa

from flywheel.intake.records import Json
from flywheel.intake.replay import RUN as REPLAY
from flywheel.intake.report import COUNTS
from flywheel.store.registry import Registry, schema


@dataclass(frozen=True)
class Totals:
    """All runs of a task together.

    Args:
        counts: the sums by name.
        replayed: records that replays read a second time.
        in_quarantine: records ever quarantined less those replayed: how many lie there unless an erasure took some.
    """

    counts: dict[str, int]
    replayed: int

    @property
    def in_quarantine(self) -> int:
        return self.counts["quarantined"] - self.replayed


def history(registry: Registry, task: str, *, source: str | None = None, limit: int | None = None) -> list[Json]:
    """Counts and reasons per run and source, the newest run first.

    Args:
        source: only this source.
        limit: so many of them at most.
    """
    table = schema.intake_counts
    mine = [table.c.task == task] + ([table.c.source == source] if source is not None else [])
    sums = [sa.func.sum(table.c[name]).label(name) for name in COUNTS]
    span = [sa.func.min(table.c.at).label("began"), sa.func.max(table.c.at).label("ended")]
    grouped = (
        sa.select(table.c.run, table.c.source, *span, *sums)
        .where(*mine)
        .group_by(table.c.run, table.c.source)
        .order_by(sa.func.max(table.c.id).desc())
        .limit(limit)
    )
    with registry.read() as tx:
        rows = tx.rows(grouped)
        runs = [] if limit is None else [table.c.run.in_({row["run"] for row in rows})]
        chunks = tx.rows(sa.select(table.c.run, table.c.source, table.c.reasons).where(*mine, *runs))
    reasons: dict[tuple[str, str], Counter[str]] = {}
    for chunk in chunks:
        reasons.setdefault((chunk["run"], chunk["source"]), Counter()).update(chunk["reasons"])
    return [row | {"reasons": dict(reasons[row["run"], row["source"]])} for row in rows]


def totals(registry: Registry, task: str) -> Totals:
    """The counts of all runs of a task."""
    table = schema.intake_counts
    sums = [sa.func.coalesce(sa.func.sum(table.c[name]), 0).label(name) for name in COUNTS]
    with registry.read() as tx:
        row = tx.row(sa.select(*sums).where(table.c.task == task))
        again = tx.scalar(
            sa.select(sa.func.sum(table.c.read)).where(table.c.task == task, table.c.run.startswith(REPLAY))
        )
    assert row is not None
    return Totals({name: int(row[name]) for name in COUNTS}, int(again or 0))
