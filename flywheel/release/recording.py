"""Recording the probes of a candidate, where and right after it was evaluated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flywheel.errors import CheckpointError
from flywheel.evaluation.items import load_suite
from flywheel.evaluation.spec import EvaluationSpec
from flywheel.release.probe import PROBES, is_recorded, record_probes, weights_failure
from flywheel.release.releases import Release, recordings
from flywheel.store.home import Home

if TYPE_CHECKING:
    from flywheel.engine.engine import Engine


def record_answered(engine: Engine, spec: EvaluationSpec) -> None:
    """Record the probes of an evaluation's candidate on its first gate items (golden ones when there are none).

    Args:
        engine: the evaluation's own, with the candidate in it and nothing running.

    Raises CheckpointError when base or weights are not those that the spec names.
    """
    home, release = Home(spec.home), _candidate(spec)
    wrong = weights_failure(engine, release)
    if wrong is not None:
        raise CheckpointError(f"cannot record probes of {release.name}: {wrong}")
    items = [item for suite in (spec.gate, spec.golden) for item in load_suite(home, suite).items[:PROBES]]
    prompts = [list(item.messages) for item in items]
    sources = [item.interaction_id for item in items]
    record_probes(engine, engine.tokenizer, release, prompts, recordings(home, release.digest), sources=sources)


def record_evaluated(spec: EvaluationSpec, report: Callable[[str], None]) -> None:
    """Record what an evaluation that finished earlier left unrecorded, in an engine of its own; mostly does nothing.

    Computes with the dtype and threads of the evaluation. Needs no registry.
    """
    home, release = Home(spec.home), _candidate(spec)
    if is_recorded(home, release.digest):
        return
    from flywheel.engine.engine import Engine
    from flywheel.models import choose_compute, resolve

    compute = choose_compute(spec.dtype, spec.threads)
    with Engine(resolve(release.base["name"]), compute, max_rows=1, max_context=spec.max_context) as engine:
        folder = release.adapter_folder(home)
        if release.adapter is not None and folder is not None:
            engine.load_adapter(release.adapter, folder)
        record_answered(engine, spec)
    report(f"recorded the probes of {release.name}")


def _candidate(spec: EvaluationSpec) -> Release:
    contender = spec.candidate
    return Release(contender.release, spec.task, contender.base, contender.checkpoint, contender.system_prompt, {})
