"""Open loops whose dataset, suites or candidate an erasure has touched: they end; the next one takes their window."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from flywheel.erasure.work import Work
from flywheel.loops.claims import LOOPS, OPEN_STATES, abandon
from flywheel.store.registry import Transaction, schema
from flywheel.store.registry.erasures import tainted_checkpoints

REASON = "erasure: rows behind this loop were erased; the next loop takes its window"


def end_loops(work: Work) -> None:
    """Fail the open loops that were made of what is erased. No process runs one: ``begin`` has seen to it."""
    datasets, suites = work.buried("dataset"), work.buried("suite")
    with work.registry.write() if work.apply else work.registry.read() as tx:
        for row in tx.rows(sa.select(LOOPS).where(LOOPS.c.state.in_(OPEN_STATES))):
            if _affected(tx, row, work, datasets, suites):
                work.counts["loops"] += 1
                if work.apply:
                    abandon(tx, row["loop_id"], REASON)


def _affected(tx: Transaction, row: dict[str, Any], work: Work, datasets: set[str], suites: set[str]) -> bool:
    selections, releases = schema.selections, schema.releases
    drawn = tx.row(sa.select(selections.c.gate, selections.c.golden).where(selections.c.loop_id == row["loop_id"]))
    checkpoint = tx.scalar(sa.select(releases.c.checkpoint).where(releases.c.digest == row["candidate"]))
    return (
        row["dataset"] in datasets
        or (drawn is not None and not suites.isdisjoint(drawn.values()))
        or checkpoint in tainted_checkpoints(tx, row["task"], also=work.taught)
    )
