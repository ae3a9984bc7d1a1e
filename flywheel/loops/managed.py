"""Runs outside a loop: training on the user's own files, and judging any release for CI."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.datasets import SFT, load_examples
from flywheel.errors import EvaluationError, PromotionRefused
from flywheel.evaluation.items import Suite, load_suite, make_item, make_suite, write_suite
from flywheel.evaluation.life import live_suite
from flywheel.evaluation.runner import register_evaluation
from flywheel.evaluation.spec import make_spec
from flywheel.gate import Decision, decide
from flywheel.loops.evaluation import plan, result_of
from flywheel.loops.run import run_or_raise
from flywheel.models import resolve
from flywheel.release.pointer import champion, ensure_champion
from flywheel.release.releases import find_release, get_release, make_release
from flywheel.store.files import write_atomic
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.training.managed import train_on_files

Say = Callable[[str], None]


def train_files(
    config: Config, home: Home, registry: Registry, task: str, data: Path, held_out: Path | None, *, say: Say
) -> dict[str, Any]:
    """Train on a user's JSONL file from the base, make a release and score it against the champion.

    Scores are on ``held_out``, or without it on the share of ``data`` that was kept for validation.

    Returns:
        ``release``, ``checkpoint``, ``run`` (figures for people) and ``scores`` (rows per role: n, accuracy, macro_f1).
    """
    model = resolve(config.task(task).base)
    run = train_on_files(config, home, registry, task, data, held_out, on_line=say)
    with registry.write() as tx:
        release = make_release(tx, config, task, model, run.checkpoint)
    suite = _validation_suite(home, task, run.dataset)
    scores = _scores(config, home, registry, task, release.digest, suite, say) if suite.items else []
    figures = {name: run.manifest[name] for name in ("steps", "cpu_seconds", "gpu_seconds")}
    figures |= {"tokens": run.manifest["tokens"]["seen"], "final loss": run.losses["train"][-1][1]}
    figures["loss curve"] = str(_write_curve(home, run.checkpoint, run.losses))
    return {"release": release.digest, "checkpoint": run.checkpoint, "run": figures, "scores": scores}


def _scores(
    config: Config, home: Home, registry: Registry, task: str, release: str, suite: Suite, say: Say
) -> list[dict[str, Any]]:
    write_suite(home, suite)
    empty = make_suite(task, "golden", [])
    write_suite(home, empty)
    summary = _evaluate(config, home, registry, task, release, suite.digest, empty.digest, say)[1]["gate"]
    return [
        {"release": role, "n": summary["items"]} | {k: summary[role][k] for k in ("accuracy", "macro_f1")}
        for role in ("champion", "candidate")
    ]


def _validation_suite(home: Home, task: str, dataset: str) -> Suite:
    """The validation rows of a dataset as suite items."""
    rows = [row for row in load_examples(home, dataset) if row["side"] == "val" and row["kind"] == SFT]
    items = []
    for number, row in enumerate(rows):
        *messages, target = json.loads(row["messages"])
        tools = json.loads(row["tools"]) if row["tools"] else None
        items.append(make_item("", "", messages, tools, target["content"], cluster=number, novel=True))
    return make_suite(task, "gate", items)


def _write_curve(home: Home, checkpoint: str, losses: dict[str, list[list[float]]]) -> Path:
    from flywheel.training.curve import curve_png

    path = home.root / "curves" / f"{checkpoint}.png"
    write_atomic(path, curve_png(losses, title="loss"))
    return path


def judge_release(config: Config, home: Home, registry: Registry, task: str, candidate: str, *, say: Say) -> Decision:
    """Evaluate a release against the champion on the task's live suites and judge it; promotes nothing.

    Args:
        candidate: digest of a release of the task, a unique beginning of it, or its name.

    Raises:
        PromotionRefused: no such release, or it is the champion itself.
        EvaluationError: the task has no live gate suite yet.
    """
    with registry.read() as tx:
        release = find_release(tx, task, candidate)
        current = champion(tx, task)
        suites = {kind: live_suite(tx, task, kind) for kind in ("gate", "golden")}
    if current is not None and current.release == release.digest:
        raise PromotionRefused(f"{release.name} is the champion of {task}; there is nothing to judge")
    if suites["gate"] is None:
        raise EvaluationError(f"{task} has no live gate suite yet; a loop draws one from labelled audit items")
    gate = load_suite(home, suites["gate"]).digest
    if suites["golden"] is None:
        write_suite(home, make_suite(task, "golden", []))
    golden = suites["golden"] or make_suite(task, "golden", []).digest
    digest, _ = _evaluate(config, home, registry, task, release.digest, gate, golden, say)
    return decide(config, home, registry, digest)


def _evaluate(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    release: str,
    gate: str,
    golden: str,
    say: Say,
) -> tuple[str, dict[str, Any]]:
    """Run one evaluation against the champion; returns its digest and summary."""
    current = ensure_champion(registry, config, task, resolve(config.task(task).base))
    with registry.read() as tx:
        spec = make_spec(
            config,
            home,
            task,
            champion=get_release(tx, current.release),
            candidate=get_release(tx, release),
            pointer_version=current.version,
            gate=gate,
            golden=golden,
        )
    planned = plan(home, registry, spec)
    if not planned.reused:
        run_or_raise(planned.spec_path, say)
    result = result_of(home, registry, planned)
    return register_evaluation(registry, spec, result), result["summary"]
