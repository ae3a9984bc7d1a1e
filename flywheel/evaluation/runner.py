"""One evaluation from spec to score file: champion and candidate answer every item, in the same run.

On disk: finished waves in the run folder, then the score file, then ``result.json``, then the waves go. A kill anywhere
costs at most one wave, and a finished evaluation is returned as it is, never rolled again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from pydantic import ValidationError

from flywheel.errors import ConfigError, EvaluationError
from flywheel.evaluation.items import Suite, load_suite
from flywheel.evaluation.report import Scores, SuiteScores, load_scores, write_scores
from flywheel.evaluation.scorers import get_scorer, metrics
from flywheel.evaluation.spec import Contender, EvaluationSpec
from flywheel.evaluation.waves import Answer, answer_suite, clear_waves
from flywheel.store.digests import short
from flywheel.store.files import read_json, write_json
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

if TYPE_CHECKING:
    from flywheel.engine.engine import Engine
    from flywheel.models import ChatTokenizer, Compute

EVALUATIONS = schema.evaluations
ROLES = ("champion", "candidate")

_REPORT_EVERY_S = 2.0


Answered = Callable[["Engine", EvaluationSpec], None]
"""Called when the candidate has answered and is still loaded."""


def run_spec(
    raw: dict[str, Any], report: Callable[[str], None], *, answered: Answered = lambda engine, spec: None
) -> dict[str, Any]:
    """Evaluate what a spec asks for, on a private engine; the entry of ``python -m flywheel.training``.

    Needs no registry: the caller records the result with ``register_evaluation``.

    Args:
        answered: may use the engine for more while the candidate is in it. Not called for an evaluation that had
            finished before.

    Returns:
        ``evaluation`` (digest of the score file), ``input_digest`` and ``summary``.

    Raises:
        ConfigError: the spec is wrong.
        EvaluationError: a base model, checkpoint or suite is not what the spec says, or the engine failed.
    """
    try:
        spec = EvaluationSpec.model_validate(raw)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ConfigError(f"the evaluation spec is wrong: {faults}") from None
    if (done := finished(spec)) is not None:
        report(f"already evaluated: {short(done['evaluation'])}")
        return done
    from flywheel.models import choose_compute

    started = time.monotonic()
    home, compute = Home(spec.home), choose_compute(spec.dtype, spec.threads)
    suites = [load_suite(home, spec.gate), load_suite(home, spec.golden)]
    spec.folder.mkdir(parents=True, exist_ok=True)
    answers = _answers(spec, suites, compute, report, answered)
    scores = [_scores(spec, suite, [answers[role][index] for role in ROLES]) for index, suite in enumerate(suites)]
    content = Scores(
        task=spec.task,
        tenant=spec.tenant,
        input_digest=spec.input_digest(),
        champion=spec.champion.release,
        candidate=spec.candidate.release,
        pointer_version=spec.pointer_version,
        scorer=spec.scorer,
        decode=spec.decode,
        gate=scores[0],
        golden=scores[1],
    )
    name = write_scores(home, content)
    summary = _summary(spec, suites, answers) | {
        "machine_class": compute.machine_class,
        "seconds": round(time.monotonic() - started, 1),
    }
    result = {"evaluation": name, "input_digest": spec.input_digest(), "summary": summary}
    write_json(spec.folder / "result.json", result)
    clear_waves(spec.folder)
    report(f"evaluation {short(name)} of {len(scores[0].champion)} gate and {len(scores[1].champion)} golden items")
    return result


def evaluate(
    engine: Engine,
    tokenizer: ChatTokenizer,
    contender: Contender,
    suites: Sequence[Suite],
    *,
    adapter_folder: Path | None,
    wave: int,
    resume_folder: Path,
    role: str = "candidate",
    progress: Callable[[int], None] = lambda items: None,
) -> list[list[Answer]]:
    """The answers of one release to the items of each suite, in order; its adapter stays loaded.

    Args:
        adapter_folder: the release's adapter; None when it is the bare base model.
        wave: items decoded side by side.
        resume_folder: finished waves lie here; keep one folder for one evaluation.

    Raises EvaluationError when the adapter's weights are not those that the release names.
    """
    adapter = None
    if adapter_folder is not None:
        adapter = contender.name
        if (found := engine.load_adapter(adapter, adapter_folder)) != contender.checkpoint:
            raise EvaluationError(
                f"{adapter_folder}: the weights have digest {short(found)}, the release names "
                f"{short(contender.checkpoint or 'none')}; train again"
            )
    return [
        answer_suite(
            engine,
            tokenizer,
            contender,
            suite,
            adapter=adapter,
            wave=wave,
            folder=resume_folder,
            role=role,
            progress=progress,
        )
        for suite in suites
    ]


def finished(spec: EvaluationSpec) -> dict[str, Any] | None:
    """The result of an evaluation with these inputs that finished in this home, or None."""
    try:
        result: dict[str, Any] = read_json(spec.folder / "result.json")
        load_scores(Home(spec.home), result["evaluation"])
    except (FileNotFoundError, EvaluationError):
        return None
    return result


def registered_evaluation(registry: Registry, home: Home, input_digest: str) -> dict[str, Any] | None:
    """The recorded result of an evaluation with these inputs, whoever ran it, if its score file is whole."""
    with registry.read() as tx:
        rows = tx.rows(
            sa.select(EVALUATIONS).where(EVALUATIONS.c.input_digest == input_digest).order_by(EVALUATIONS.c.at)
        )
    for row in rows:
        try:
            load_scores(home, row["digest"])
        except EvaluationError:
            continue
        return {"evaluation": row["digest"], "input_digest": input_digest, "summary": row["summary"]}
    return None


def register_evaluation(registry: Registry, spec: EvaluationSpec, result: dict[str, Any]) -> str:
    """Record a finished evaluation and return its digest; with one of the same inputs on record, that one's digest.

    The first result stands: running the same evaluation again, on another machine say, cannot replace it.
    """
    known = registered_evaluation(registry, Home(spec.home), spec.input_digest())
    if known is not None:
        return str(known["evaluation"])
    with registry.write() as tx:
        if tx.scalar(sa.select(EVALUATIONS.c.digest).where(EVALUATIONS.c.digest == result["evaluation"])) is None:
            row = {
                "digest": result["evaluation"],
                "task": spec.task,
                "loop_id": spec.loop_id,
                "input_digest": spec.input_digest(),
                "champion": spec.champion.release,
                "candidate": spec.candidate.release,
                "summary": result["summary"],
            }
            tx.execute(sa.insert(EVALUATIONS).values(**row, **tx.stamp()))
    return str(result["evaluation"])


def _answers(
    spec: EvaluationSpec,
    suites: Sequence[Suite],
    compute: Compute,
    report: Callable[[str], None],
    answered: Answered,
) -> dict[str, list[list[Answer]]]:
    """Answers by role, suite and item. Releases on one base share an engine, one after the other."""
    from flywheel.engine.engine import Engine
    from flywheel.models import load_tokenizer, resolve

    answers: dict[str, list[list[Answer]]] = {}
    same_base = spec.champion.base == spec.candidate.base
    for roles in [ROLES] if same_base else [(role,) for role in ROLES]:
        base = _contender(spec, roles[0]).base
        model = resolve(base["name"])
        for part in ("weights_digest", "tokenizer_digest", "template_digest"):
            if base[part] != getattr(model, part):
                raise EvaluationError(
                    f"base model {base['name']!r} has {part} {short(getattr(model, part))} here, the release was made "
                    f"with {short(base[part])}; pull the same model again"
                )
        tokenizer = load_tokenizer(model)
        engine = Engine(model, compute, max_rows=spec.wave, max_context=spec.max_context, queue_limit=spec.wave)
        with engine:
            for role in roles:
                contender = _contender(spec, role)
                folder = Home(spec.home).checkpoints / contender.checkpoint if contender.checkpoint else None
                answers[role] = evaluate(
                    engine,
                    tokenizer,
                    contender,
                    suites,
                    adapter_folder=folder,
                    wave=spec.wave,
                    resume_folder=spec.folder,
                    role=role,
                    progress=_Progress(role, sum(len(suite.items) for suite in suites), report),
                )
                if role == "candidate":
                    answered(engine, spec)
                if contender.checkpoint:
                    engine.unload_adapter(contender.name)  # the next release finds the engine as this one did
    return answers


def _contender(spec: EvaluationSpec, role: str) -> Contender:
    return spec.champion if role == "champion" else spec.candidate


def _scores(spec: EvaluationSpec, suite: Suite, answers: Sequence[Sequence[Answer]]) -> SuiteScores:
    score = get_scorer(spec.scorer)
    champion, candidate = (
        [0 if said is None else score(said, item.label) for said, item in zip(column, suite.items, strict=True)]
        for column in answers
    )
    return SuiteScores(
        suite=suite.digest,
        kind=suite.kind,
        clusters=[item.cluster for item in suite.items],
        slices=[item.slice for item in suite.items],
        champion=champion,
        candidate=candidate,
    )


def _summary(spec: EvaluationSpec, suites: Sequence[Suite], answers: dict[str, list[list[Answer]]]) -> dict[str, Any]:
    """Counts and library metrics by suite and role. No text."""
    summary: dict[str, Any] = {"suites": spec.suites, "loop_id": spec.loop_id, "scorer": spec.scorer}
    for index, suite in enumerate(suites):
        labels = [item.label for item in suite.items]
        summary[suite.kind] = {"items": len(labels), "novel": suite.novel()} | {
            role: metrics([said or "" for said in answers[role][index]], labels)
            | {"too_long": answers[role][index].count(None)}
            for role in ROLES
        }
    return summary


class _Progress:
    """Says how far a release has come, at most every two seconds."""

    def __init__(self, role: str, total: int, report: Callable[[str], None]) -> None:
        self._role, self._total, self._report = role, total, report
        self._done, self._said = 0, 0.0

    def __call__(self, items: int) -> None:
        self._done += items
        now = time.monotonic()
        if now - self._said >= _REPORT_EVERY_S or self._done == self._total:
            self._said = now
            self._report(f"{self._role}: {self._done} of {self._total} items answered")
