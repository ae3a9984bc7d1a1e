"""The two jobs of each task."""

from typing import TYPE_CHECKING, TypeAlias

import dagster as dg

if TYPE_CHECKING:
    # What `define_asset_job` returns; Dagster exports no public name for it.
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

AssetJob: TypeAlias = "UnresolvedAssetJobDefinition"
LOOP_STAGES = ("dataset", "candidate", "evaluation", "champion")
INTAKE_STAGES = ("interactions", "labels")


def intake_job(task: str) -> AssetJob:
    """Interactions and labels. One run at a time per task, by the run-tag limits of dagster.yaml."""
    return dg.define_asset_job(
        f"{task}_intake",
        selection=dg.AssetSelection.assets(*([task, stage] for stage in INTAKE_STAGES)),
        tags={"flywheel/intake": task},
        description=f"Reads the logs of {task} and brings its labels up to date.",
    )


def loop_job(task: str) -> AssetJob:
    """Dataset to champion. One run at a time per task, by the run-tag limits of dagster.yaml."""
    return dg.define_asset_job(
        f"{task}_loop",
        selection=dg.AssetSelection.assets(*([task, stage] for stage in LOOP_STAGES)),
        tags={"flywheel/loop": task},
        description=f"One turn of the wheel for {task}: dataset, training, evaluation, gate, promotion.",
    )
