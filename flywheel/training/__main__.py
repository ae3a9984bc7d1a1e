"""``python -m flywheel.training --spec spec.json``: one training or evaluation, in a process of its own.

Runs by hand, under ``run_child``, under Dagster Pipes, and wherever else a command can be started. Exit status: 0 done,
2 a Flywheel error (one line on stderr), 1 an unforeseen one (one line with its type and place), 130 asked to stop (a
re-run goes on). The last line on stdout is JSON that names the result.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flywheel.errors import ConfigError, FlywheelError, without_message
from flywheel.store.home import Home
from flywheel.training.pipes import Reporter, open_reporter, tell
from flywheel.training.signals import INTERRUPTED, Interrupted, Stop, die_with_parent
from flywheel.training.spec import TrainSpec


def main(arguments: list[str] | None = None) -> int:
    """Run the spec; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m flywheel.training", description=__doc__.splitlines()[0])
    parser.add_argument("--spec", type=Path, required=True, help="JSON of a train or evaluate spec")
    path: Path = parser.parse_args(arguments).spec
    stop = Stop()
    stop.install()
    die_with_parent(os.environ)
    try:
        with open_reporter() as report:
            status, result = attempt(path, report, stop)
            if status == 0:
                report.message({"kind": "result", **result})
    except Interrupted as interrupted:
        tell(str(interrupted))
        return INTERRUPTED
    if status == 0:
        sys.stdout.write(json.dumps(result) + "\n")
    return status


def attempt(path: Path, report: Reporter, stop: Stop) -> tuple[int, dict[str, Any]]:
    """Run the spec; returns the exit status and, with status 0, the result.

    Errors end here: Pipes shows those that pass it on the run's page with all that led to them, and a message down
    that chain may quote a row.
    """
    try:
        return 0, dispatch(read_spec(path), report, stop)
    except FlywheelError as error:
        report.failed(f"error: {error}")
        return 2, {}
    except Exception as error:  # noqa: BLE001 - the edge of the process: nobody further out could say it as safely
        report.failed(f"error: {without_message(error)}")
        return 1, {}


def read_spec(path: Path) -> dict[str, Any]:
    """The spec as a dictionary. Raises ConfigError when the file is no JSON object with a ``kind``."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: no readable spec ({type(error).__name__})") from None
    if not isinstance(raw, dict) or raw.get("kind") not in ("train", "evaluate"):
        raise ConfigError(f"{path}: expected a JSON object with kind `train` or `evaluate`")
    return raw


def dispatch(raw: dict[str, Any], report: Reporter, stop: Stop) -> dict[str, Any]:
    """Do what a spec asks; returns a small dictionary that names the result."""
    if raw["kind"] == "evaluate":
        from flywheel.evaluation.runner import run_spec
        from flywheel.evaluation.spec import EvaluationSpec
        from flywheel.release.recording import record_answered, record_evaluated
        from flywheel.training.run import compute_lock

        if not isinstance(raw.get("home"), str):
            raise ConfigError("the evaluation spec is wrong: home: expected a path")
        with compute_lock(Home(Path(raw["home"])), report):
            result = run_spec(raw, report, answered=record_answered)
            record_evaluated(EvaluationSpec.model_validate(raw), report)
            return {"evaluation": result["evaluation"]}
    from flywheel.training.run import run_training

    try:
        spec = TrainSpec.model_validate(raw)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ConfigError(f"the train spec is wrong: {faults}") from None
    return {"checkpoint": run_training(spec, report, stop)["digest"]}


if __name__ == "__main__":
    sys.exit(main())
