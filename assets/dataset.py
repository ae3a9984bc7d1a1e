"""Asset ``dataset``: an immutable set of examples, and the suites that were set aside first."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from assets.deployment import Deployment
from assets.metadata import counts, name_of, numbers
from assets.steps import loop_step
from flywheel.loops.claims import finish
from flywheel.loops.context import Ended
from flywheel.loops.dataset import dataset_stage


def dataset(task: str) -> dg.AssetsDefinition:
    """The asset of one task."""
    key = dg.AssetKey([task, "dataset"])

    @dg.multi_asset(
        name=f"{task}__dataset",
        specs=[
            dg.AssetSpec(
                key,
                deps=[dg.AssetKey([task, "labels"])],
                group_name=task,
                kinds={"duckdb", "parquet"},
                skippable=True,
                description=(
                    "Deduplicated, capped, split examples of this loop's window, with a replay of earlier datasets. "
                    "Suite items, their conversations and copies are kept out. Skipped, with the reason, when there "
                    "is too little to train on or to judge by."
                ),
            )
        ],
    )
    def _dataset(context: dg.AssetExecutionContext, deployment: Deployment) -> Iterator[Any]:
        with loop_step(context, deployment, task, may_open=True) as ctx:
            result = dataset_stage(ctx)
            if isinstance(result, Ended):
                finish(ctx.registry, ctx.lease, result.verdict, result.reasons)
                context.log.warning(f"{ctx.lease.loop_id} ends {result.verdict}: {'; '.join(result.reasons)}")
                yield ended_observation(task, ctx.lease.loop_id, result.verdict, result.reasons)
                return
        manifest = result.manifest
        yield dg.MaterializeResult(
            asset_key=key,
            metadata={
                "loop": ctx.lease.loop_id,
                **numbers(manifest.get("rows", {}), "data/rows_"),
                **numbers(manifest.get("kinds", {}), "data/kind_"),
                **numbers(manifest.get("caps", {}), "caps/"),
                **numbers(manifest.get("firewall", {}), "firewall/"),
                "suites/gate_items": result.gate_items,
                "suites/golden_items": result.golden_items,
                "dropped": counts(manifest.get("dropped", {}), "reason"),
                "labels_by_source": counts(manifest.get("labels", {}), "source"),
                "digest": name_of(result.digest),
                "parent": name_of(manifest.get("parent"), "none: starts from the base model"),
                "notes": "; ".join(result.notes) or "-",
            },
            data_version=dg.DataVersion(result.digest),
        )

    return _dataset


def ended_observation(task: str, loop_id: str, verdict: str, reasons: list[str]) -> dg.AssetObservation:
    """What the champion's page shows for a loop that did not promote."""
    return dg.AssetObservation(
        asset_key=dg.AssetKey([task, "champion"]),
        description=f"{loop_id}: {verdict}",
        metadata={"loop": loop_id, "verdict": verdict, "reasons": dg.MetadataValue.json(reasons)},
    )
