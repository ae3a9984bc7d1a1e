"""Recording the probes of a candidate, where and right after it was evaluated."""

from __future__ import annotations

from collections.abc import Callable

from flywheel.errors import CheckpointError
from flywheel.evaluation.items import load_suite
from flywheel.evaluation.spec import EvaluationSpec
from flywheel.release.probe import PROBES, is_recorded, record_probes, weights_failure
from flywheel.release.releases import Release, recordings
from flywheel.store.home import Home


def record_evaluated(spec: EvaluationSpec, report: Callable[[str], None]) -> None:
    """Record the probes of an evaluation's candidate on its first gate items (golden ones when there are none).

    Computes with the dtype and threads of the evaluation, in an engine of its own; a release that is recorded already
    costs nothing. Needs no registry.

    Raises CheckpointError when base or weights are not those that the spec names.
    """
    home, contender = Home(spec.home), spec.candidate
    if is_recorded(home, contender.release):
        return
    from flywheel.engine.engine import Engine
    from flywheel.models import choose_compute, resolve

    release = Release(contender.release, spec.task, contender.base, contender.checkpoint, contender.system_prompt, {})
    items = [item for suite in (spec.gate, spec.golden) for item in load_suite(home, suite).items[:PROBES]]
    compute = choose_compute(spec.dtype, spec.threads)
    with Engine(resolve(contender.base["name"]), compute, max_rows=1, max_context=spec.max_context) as engine:
        folder = release.adapter_folder(home)
        if release.adapter is not None and folder is not None:
            engine.load_adapter(release.adapter, folder)
        wrong = weights_failure(engine, release)
        if wrong is not None:
            raise CheckpointError(f"cannot record probes of {release.name}: {wrong}")
        prompts = [list(item.messages) for item in items]
        record_probes(engine, engine.tokenizer, release, prompts, recordings(home, release.digest))
    report(f"recorded {min(PROBES, len(prompts)) or PROBES} probes of {release.name}")
