"""Stage ``dataset``: set the judges aside first, then build what the candidate will learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flywheel.datasets import build
from flywheel.errors import DatasetError
from flywheel.evaluation.suites import graduated, held_out, select_suites
from flywheel.loops.claims import record
from flywheel.loops.context import Ended, LoopContext
from flywheel.loops.lineage import lineage_datasets
from flywheel.release.pointer import champion


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

    Ends the loop as ``inconclusive`` when it cannot lead to a promotion: too few gate items, or too few examples.
    """
    row = ctx.row()
    with ctx.registry.read() as tx:
        current = champion(tx, ctx.task)
        lineage = lineage_datasets(tx, current.release) if current else []
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
                *suites.notes,
            ],
        )
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
    return DatasetStage(
        built.digest, built.manifest, len(suites.gate.items), len(suites.golden.items), list(suites.notes)
    )
