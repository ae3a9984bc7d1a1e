"""One whole turn without Dagster: what ``flywheel loop run`` does. The stages are the ones the assets run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.errors import TrainingError
from flywheel.intake import run_intake
from flywheel.labels import run_labels
from flywheel.labels.verify import run_verifiers
from flywheel.loops.candidate import finish_candidate, plan_candidate
from flywheel.loops.champion import champion_stage
from flywheel.loops.claims import enter, finish
from flywheel.loops.context import Ended, LoopContext
from flywheel.loops.dataset import dataset_stage
from flywheel.loops.evaluation import finish_evaluation, plan_evaluation
from flywheel.loops.foreign import refuse_elsewhere
from flywheel.loops.overview import find_loop, loop_view
from flywheel.models import resolve
from flywheel.release.pointer import ensure_champion
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.training.child import run_child

Say = Callable[[str], None]


def run_loop(config: Config, home: Home, registry: Registry, task: str, *, run_id: str, say: Say) -> dict[str, Any]:
    """Intake and labels, then one loop from dataset to champion; returns the loop as ``loop_view`` shows it.

    Killed and called again, it joins the loop it had opened and reuses what was finished. Raises ConfigError after
    intake and labels when an engine that is not ours answers the task.
    """
    run_intake(config, home, registry, task, run=run_id)
    run_verifiers(config, home, registry, task, say=say)
    labels = run_labels(config, home, registry, task)
    say(f"labels: {labels.total} ({labels.new_versions} new versions)")
    refuse_elsewhere(config, task)
    ensure_champion(registry, config, task, resolve(config.task(task).base))
    ctx = LoopContext(config, home, registry, enter(registry, task, run_id))
    say(f"loop {ctx.lease.loop_id}, attempt {ctx.lease.attempt}")
    _stages(ctx, say)
    with registry.read() as tx:
        row = find_loop(tx, ctx.lease.loop_id)
        assert row is not None, ctx.lease
        return loop_view(tx, row)


def _stages(ctx: LoopContext, say: Say) -> None:
    dataset = dataset_stage(ctx)
    if isinstance(dataset, Ended):
        finish(ctx.registry, ctx.lease, dataset.verdict, dataset.reasons)
        return
    say(f"dataset {dataset.digest[:12]}: {dataset.manifest['rows']}")
    training = plan_candidate(ctx)
    if not training.reused:
        run_or_raise(training.spec_path, say)
    candidate = finish_candidate(ctx, training)
    say(f"candidate {candidate.name}")
    evaluation = plan_evaluation(ctx)
    if not evaluation.reused:
        run_or_raise(evaluation.spec_path, say)
    judged = finish_evaluation(ctx, evaluation)
    say(f"verdict: {judged.decision.verdict}")
    champion_stage(ctx)


def run_or_raise(spec_path: Path, say: Say) -> None:
    """Run a child; its lines go to ``say``.

    Raises KeyboardInterrupt when it was asked to stop, TrainingError when it failed.
    """
    from flywheel.training.signals import INTERRUPTED

    status = run_child(spec_path, on_line=say)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    if status != 0:
        raise TrainingError(f"the child process for {spec_path} ended with status {status}; its last lines are above")
