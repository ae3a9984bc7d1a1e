"""Stage ``evaluation``: champion and candidate answer the same items in a child process; the gate judges the scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flywheel.errors import EvaluationError
from flywheel.evaluation.runner import finished, register_evaluation, registered_evaluation
from flywheel.evaluation.spec import EvaluationSpec, make_spec
from flywheel.gate import Decision, decide
from flywheel.loops.claims import held, record
from flywheel.loops.context import LoopContext
from flywheel.release.probe import is_recorded
from flywheel.release.releases import get_release
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema


@dataclass(frozen=True)
class EvaluationPlan:
    """An evaluation to run, or one that was run before with the same inputs."""

    spec: EvaluationSpec
    spec_path: Path
    reused: bool


@dataclass(frozen=True)
class EvaluationStage:
    """A recorded evaluation and the decision made of it."""

    digest: str
    summary: dict[str, Any]
    decision: Decision


def plan_evaluation(ctx: LoopContext) -> EvaluationPlan:
    """What to evaluate: the loop's candidate against the champion of this moment, on the loop's suites.

    Raises EvaluationError when the loop has no candidate or no suites yet, or the task has no champion.
    """
    loop_id, row = ctx.lease.loop_id, ctx.row()
    if row["candidate"] is None:
        raise EvaluationError(f"{loop_id} has no candidate yet; materialise `candidate` first")
    selections = schema.selections
    current = ctx.champion()
    with ctx.registry.read() as tx:
        suites = tx.row(sa.select(selections).where(selections.c.loop_id == loop_id))
        if current is None or suites is None:
            lacks = "suites" if current is not None else "champion to compare with"
            raise EvaluationError(f"{loop_id} has no {lacks}; materialise `dataset` first")
        spec = make_spec(
            ctx.config,
            ctx.home,
            ctx.task,
            champion=get_release(tx, current.release),
            candidate=get_release(tx, row["candidate"]),
            pointer_version=current.version,
            gate=suites["gate"],
            golden=suites["golden"],
            loop_id=loop_id,
        )
    return plan(ctx.home, ctx.registry, spec)


def plan(home: Home, registry: Registry, spec: EvaluationSpec) -> EvaluationPlan:
    """Write a spec for the child, unless it was evaluated before and the candidate's probes are on disk."""
    done = finished(spec) or registered_evaluation(registry, home, spec.input_digest())
    return EvaluationPlan(spec, spec.write(), done is not None and is_recorded(home, spec.candidate.release))


def result_of(home: Home, registry: Registry, plan: EvaluationPlan) -> dict[str, Any]:
    """The result that the child left. Raises EvaluationError when there is none."""
    result = registered_evaluation(registry, home, plan.spec.input_digest()) or finished(plan.spec)
    if result is None:
        raise EvaluationError(f"the evaluation in {plan.spec.folder} ended without a result")
    return result


def finish_evaluation(ctx: LoopContext, plan: EvaluationPlan) -> EvaluationStage:
    """Record the evaluation, let the gate decide, and note both in the loop."""
    result = result_of(ctx.home, ctx.registry, plan)
    with ctx.registry.read() as tx:
        held(tx, ctx.lease)
    digest = register_evaluation(ctx.registry, plan.spec, result)
    # Before the judgement, because that may graduate suite items.
    record(ctx.registry, ctx.lease, evaluation=digest, decision=None)
    decision = decide(ctx.config, ctx.home, ctx.registry, digest)
    record(ctx.registry, ctx.lease, decision=decision.digest)
    return EvaluationStage(digest, result["summary"], decision)
