"""Stage ``candidate``: plan the training run, let a child process do it, and make a release of what it published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flywheel.errors import TrainingError
from flywheel.loops.claims import held, record
from flywheel.loops.context import LoopContext
from flywheel.models import resolve
from flywheel.release.releases import get_release, make_release
from flywheel.training.checkpoint import finished, register_checkpoint, registered_checkpoint
from flywheel.training.spec import TrainSpec, make_spec


@dataclass(frozen=True)
class CandidatePlan:
    """A run to do, or one that was done before with the same inputs."""

    spec: TrainSpec
    spec_path: Path
    reused: bool


@dataclass(frozen=True)
class CandidateStage:
    """A trained candidate: its release and its checkpoint's manifest."""

    release: str
    name: str
    manifest: dict[str, Any]


def plan_candidate(ctx: LoopContext) -> CandidatePlan:
    """What to train: the loop's dataset, from the champion's adapter (from the base when it has none).

    Raises TrainingError when the loop has no dataset yet.
    """
    dataset = ctx.row()["dataset"]
    if dataset is None:
        raise TrainingError(f"{ctx.lease.loop_id} has no dataset yet; materialise `dataset` first")
    current = ctx.champion()
    with ctx.registry.read() as tx:
        init = get_release(tx, current.release).checkpoint if current else None
    base = resolve(ctx.policy.base)
    spec = make_spec(ctx.config, ctx.home, ctx.task, base_digest=base.base_digest, dataset=dataset, init=init)
    done = finished(spec) or registered_checkpoint(ctx.registry, ctx.home, spec.input_digest())
    return CandidatePlan(spec, spec.write(), done is not None)


def finish_candidate(ctx: LoopContext, plan: CandidatePlan) -> CandidateStage:
    """Register the checkpoint that the child published and make it a release.

    Raises TrainingError when the child left none.
    """
    manifest = finished(plan.spec) or registered_checkpoint(ctx.registry, ctx.home, plan.spec.input_digest())
    if manifest is None:
        raise TrainingError(f"{ctx.lease.loop_id}: the training run {plan.spec.folder} ended without a checkpoint")
    register_checkpoint(ctx.registry, manifest)
    with ctx.registry.write() as tx:
        held(tx, ctx.lease)
        release = make_release(tx, ctx.config, ctx.task, resolve(ctx.policy.base), manifest["digest"])
    record(ctx.registry, ctx.lease, candidate=release.digest)
    return CandidateStage(release.digest, release.name, manifest)
