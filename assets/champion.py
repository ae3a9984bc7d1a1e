"""Asset ``champion``: the release that the task serves, moved only by a decision record."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from assets.dataset import ended_observation
from assets.deployment import Deployment
from assets.metadata import name_of, numbers
from assets.steps import LOOP_ID_TAG, loop_step
from flywheel.errors import FlywheelError
from flywheel.gate import card
from flywheel.loops.champion import ChampionStage, champion_stage, promote_latest
from flywheel.loops.claims import open_loop


def champion(task: str) -> dg.AssetsDefinition:
    """The asset of one task."""
    key = dg.AssetKey([task, "champion"])
    evaluation = dg.AssetKey([task, "evaluation"])

    @dg.multi_asset(
        name=f"{task}__champion",
        specs=[
            dg.AssetSpec(
                key,
                deps=[evaluation],
                group_name=task,
                kinds={"torch", "fastapi"},
                skippable=True,
                description=(
                    "The release that answers this task's requests. A run materialises it only when the gate's "
                    "decision record says `promote` for this release, these suites and this champion. To go back: "
                    f"`flywheel rollback --task {task}`."
                ),
            )
        ],
    )
    def _champion(context: dg.AssetExecutionContext, deployment: Deployment) -> Iterator[Any]:
        alone = evaluation not in context.selected_asset_keys and LOOP_ID_TAG not in context.run.tags
        if alone and not _loop_is_open(context, deployment):
            yield from _by_hand(context, deployment)
            return
        with loop_step(context, deployment, task) as ctx:
            result = champion_stage(ctx)
        if result.promotion is None:
            context.log.info(f"{ctx.lease.loop_id}: {result.verdict}; the champion stays")
            yield ended_observation(task, ctx.lease.loop_id, result.verdict, result.reasons)
            return
        yield _materialized(result, ctx.lease.loop_id)

    def _loop_is_open(context: dg.AssetExecutionContext, deployment: Deployment) -> bool:
        with deployment.open(actor=f"dagster:{context.run.run_id}") as opened, opened.registry.read() as tx:
            return open_loop(tx, task) is not None

    def _by_hand(context: dg.AssetExecutionContext, deployment: Deployment) -> Iterator[Any]:
        """Only `champion` was selected and no loop is open: the last decision must allow it, by the usual rules."""
        with deployment.open(actor=f"dagster:{context.run.run_id}") as opened:
            try:
                result = promote_latest(opened.config, opened.home, opened.registry, task)
            except FlywheelError as error:
                raise dg.Failure(description=f"refused: {error}", allow_retries=False) from error
        yield _materialized(result, result.loop_id or "none")

    def _materialized(result: ChampionStage, loop_id: str) -> dg.MaterializeResult[None]:
        promotion = result.promotion
        assert promotion is not None, result
        return dg.MaterializeResult(
            asset_key=key,
            metadata={
                "loop": loop_id,
                "decision_card": dg.MetadataValue.md(card(result.decision)),
                "release": name_of(promotion.release),
                "previous": name_of(promotion.previous),
                **numbers({"version": promotion.version, "replicas": promotion.replicas}, "champion/"),
                **numbers({"swap_ms": promotion.swap_ms}, "champion/"),
                "rollback": f"flywheel rollback --task {task}",
                "notes": "; ".join(promotion.notes) or "-",
            },
            data_version=dg.DataVersion(promotion.release),
        )

    return _champion
