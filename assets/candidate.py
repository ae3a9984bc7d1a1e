"""Asset ``candidate``: the retrained model, made by a child process."""

from typing import Any

import dagster as dg

from assets.children import run_piped
from assets.deployment import Deployment
from assets.metadata import name_of, numbers, picture, table
from assets.steps import loop_step
from flywheel.loops.candidate import finish_candidate, plan_candidate


def candidate(task: str) -> dg.AssetsDefinition:
    """The asset of one task."""

    @dg.asset(
        name="candidate",
        key_prefix=task,
        group_name=task,
        deps=[dg.AssetKey([task, "dataset"])],
        kinds={"torch", "peft"},
    )
    def _candidate(context: dg.AssetExecutionContext, deployment: Deployment) -> dg.MaterializeResult[None]:
        """A LoRA checkpoint trained from the champion's adapter on this loop's dataset, as a release.

        Training runs in a process of its own and resumes where it stopped when it is killed. A run with the same
        inputs that has finished before is reused.
        """
        with loop_step(context, deployment, task) as ctx:
            plan = plan_candidate(ctx)
            if plan.reused:
                context.log.info("a run with the same inputs has finished before; its checkpoint is reused")
            else:
                run_piped(context, plan.spec_path)
            result = finish_candidate(ctx, plan)
        manifest = result.manifest
        return dg.MaterializeResult(
            metadata={
                "loop": ctx.lease.loop_id,
                "loss_curve": _curve(manifest),
                **numbers(_figures(manifest), "train/"),
                "recipe": table([{"setting": key, "value": str(value)} for key, value in manifest["recipe"].items()]),
                "release": result.name,
                "checkpoint": name_of(manifest["digest"]),
                "parent": name_of(manifest["parent"], "none: starts from the base model"),
                "dataset": name_of(manifest["dataset"]),
                "reused": plan.reused,
            },
            data_version=dg.DataVersion(result.release),
        )

    return _candidate


def _figures(manifest: dict[str, Any]) -> dict[str, Any]:
    losses = manifest["losses"]
    last = {f"loss_{side}": losses[side][-1][1] for side in ("train", "val") if losses.get(side)}
    plain = {name: manifest[name] for name in ("steps", "cpu_seconds", "gpu_seconds")}
    return {**last, **plain, "tokens": manifest["tokens"]["seen"], "tokens_learned": manifest["tokens"]["learned"]}


def _curve(manifest: dict[str, Any]) -> Any:
    from flywheel.training.curve import curve_png

    return picture(curve_png(manifest["losses"]), "loss curve")
