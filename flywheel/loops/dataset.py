"""Stage ``dataset``: set the judges aside first, then build what the candidate will learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from flywheel.datasets import build
from flywheel.errors import DatasetError
from flywheel.evaluation.suites import graduated, held_out, select_suites
from flywheel.loops.claims import record
from flywheel.loops.context import Ended, LoopContext
from flywheel.release.releases import get_release
from flywheel.store.registry import schema
from flywheel.store.registry.erasures import tainted_checkpoints
from flywheel.store.registry.lineage import lineage_datasets


@dataclass(frozen=True)
class DatasetStage:
    """A built dataset and the suites that were set aside before it."""

    digest: str
    manifest: dict[str, Any]
    gate_items: int
    golden_items: int
    notes: list[str]


def dataset_stage(ctx: LoopContext) -> DatasetStage | Ended:
    """Draw the suites and build the loop's dataset; the same loop gives the same digests every time.

    Ends the loop as ``inconclusive`` when it cannot lead to a promotion: too few gate items, too few examples, or a
    champion that has learned from erased rows.
    """
    row = ctx.row()
    current = ctx.champion()
    with ctx.registry.read() as tx:
        lineage = lineage_datasets(tx, current.release) if current else []
        if current and get_release(tx, current.release).checkpoint in tainted_checkpoints(tx, ctx.task):
            return Ended(
                "inconclusive",
                [
                    "the champion has learned from erased rows, and so would a candidate trained from it; roll back "
                    "first (`flywheel erase --list` names the way), and the next loop trains on what remains"
                ],
            )
    where = (ctx.config, ctx.home, ctx.registry, ctx.task)
    window = {"from_seq": row["from_seq"], "to_seq": row["to_seq"], "loop_id": ctx.lease.loop_id}
    suites = select_suites(*where, **window, lineage=lineage)
    if suites.missing:
        wanted = ", ".join(ctx.policy.labels.gate_labels)
        return Ended(
            "inconclusive",
            [
                f"the gate suite has {len(suites.gate.items)} of at least {ctx.policy.suites.gate_min} items: "
                f"{suites.missing} more audited interactions need a label from {wanted} (see `flywheel review list`)",
                "where audited labels of this window went: "
                + (
                    ", ".join(f"{name} {count}" for name, count in sorted(suites.counts.items()) if count) or "none yet"
                ),
            ],
        )
    sizes = (len(suites.gate.items), len(suites.golden.items), list(suites.notes))
    made = _evaluated(ctx, row, current.release) if current else None
    if made is not None:
        return DatasetStage(row["dataset"], made, *sizes)
    try:
        built = build(
            *where,
            **window,
            parent=lineage[-1] if lineage else None,
            lineage=lineage,
            held_out=held_out(ctx.home, ctx.registry, ctx.task),
            graduated=graduated(ctx.registry, ctx.task),
        )
    except DatasetError as error:
        return Ended("inconclusive", [str(error)])
    record(ctx.registry, ctx.lease, dataset=built.digest)
    return DatasetStage(built.digest, built.manifest, *sizes)


def _evaluated(ctx: LoopContext, row: dict[str, Any], champion: str) -> dict[str, Any] | None:
    """The manifest of the loop's dataset when its candidate was evaluated against this champion already, else None.

    The judgement may have graduated suite items, which would train if the dataset were built again.
    """
    datasets, evaluations = schema.datasets, schema.evaluations
    with ctx.registry.read() as tx:
        judged = tx.scalar(sa.select(evaluations.c.champion).where(evaluations.c.digest == row["evaluation"]))
        if judged != champion:
            return None
        manifest: dict[str, Any] = tx.scalar(sa.select(datasets.c.manifest).where(datasets.c.digest == row["dataset"]))
        return manifest
