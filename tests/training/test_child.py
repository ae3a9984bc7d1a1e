"""The child process: killed, stopped, orphaned, queued; each time nothing is lost that matters."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flywheel.store.files import locked, read_json
from flywheel.store.home import Home, process_started
from flywheel.training.child import child_command, run_child
from flywheel.training.pipes import Reporter
from flywheel.training.run import run_training
from flywheel.training.signals import INTERRUPTED, PARENT_ENV, Stop

if TYPE_CHECKING:
    from flywheel.training.spec import TrainSpec

LONG = {"max_steps": 120, "epochs": 200.0, "checkpoint_every": 20, "lr": 1e-3}
"""Two seconds of steps: long enough to be interrupted in the middle."""


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)


@contextmanager
def started(spec: TrainSpec, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A child that has taken some steps; killed at the end if it still runs."""
    env = {**os.environ, PARENT_ENV: str(os.getpid()), **environ}
    process = subprocess.Popen(
        child_command(spec.write()), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def points(spec: TrainSpec) -> list[Path]:
    return list(spec.folder.glob("resume-*"))


def test_a_killed_child_run_again_gives_the_weights_of_an_undisturbed_run(plan_run: Callable[..., TrainSpec]) -> None:
    undisturbed = run_training(plan_run("one", **LONG), Reporter(), Stop())
    spec = plan_run("two", **LONG)
    with started(spec) as child:
        wait_for(lambda: points(spec), "a resume point")
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    assert not (spec.folder / "result.json").exists()
    assert not list(Home(spec.home).checkpoints.iterdir())
    lines: list[str] = []
    assert run_child(spec.write(), on_line=lines.append) == 0
    assert any(line.startswith("going on after step ") for line in lines)
    assert read_json(spec.folder / "result.json")["checkpoint"] == undisturbed["digest"]


def test_a_child_whose_parent_is_killed_is_gone_within_seconds(plan_run: Callable[..., TrainSpec]) -> None:
    spec = plan_run(**{**LONG, "max_steps": 3000, "epochs": 2000.0})
    code = (
        "import sys; from pathlib import Path; from flywheel.training.child import run_child; "
        "run_child(Path(sys.argv[1]), on_line=lambda line: None)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(spec.write())])
    try:
        wait_for(lambda: points(spec), "a resume point")
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        child = int(children[0])
        assert process_started(child)
    finally:
        parent.kill()
        parent.wait()
    try:
        wait_for(lambda: not process_started(child), "the orphan to leave", seconds=10)
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    assert points(spec)
    assert not (spec.folder / "result.json").exists()


def test_a_child_whose_parent_died_before_it_started_does_nothing(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = subprocess.run(
        child_command(tmp_path / "spec.json"),
        env={**os.environ, PARENT_ENV: str(gone.pid)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == INTERRUPTED
    assert "was gone before this child started" in done.stderr


def test_a_second_child_waits_until_the_first_is_done(plan_run: Callable[..., TrainSpec]) -> None:
    spec = plan_run()
    with locked(Home(spec.home).locks / "compute.lock"), started(spec) as child:
        assert child.stderr is not None
        assert "waiting for it" in child.stderr.readline()
        time.sleep(0.2)
        assert child.poll() is None
        assert not points(spec)
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=10) == INTERRUPTED


def test_a_run_that_cannot_be_says_so_in_one_line(plan_run: Callable[..., TrainSpec], tmp_path: Path) -> None:
    lines: list[str] = []
    (tmp_path / "spec.json").write_text('{"kind": "dance"}')
    assert run_child(tmp_path / "spec.json", on_line=lines.append) == 2
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    wrong = json.loads(plan_run().model_dump_json()) | {"dataset": None, "colour": 1}
    (tmp_path / "spec.json").write_text(json.dumps(wrong))
    assert run_child(tmp_path / "spec.json", on_line=lines.append) == 2
    assert "dataset: " in lines[1] and "colour: " in lines[1]


def test_under_dagster_pipes_progress_and_result_are_messages(
    plan_run: Callable[..., TrainSpec], tmp_path: Path
) -> None:
    spec = plan_run()
    done, sent = _piped(child_command(spec.write()), tmp_path)
    assert done.returncode == 0, done.stderr
    custom = [message["params"]["payload"] for message in sent if message["method"] == "report_custom_message"]
    digest = read_json(spec.folder / "result.json")["checkpoint"]
    assert custom[-1] == {"kind": "result", "checkpoint": digest}
    assert custom[-2]["step"] == custom[-2]["steps"] == 12
    assert any("step 12/12" in str(message["params"]) for message in sent if message["method"] == "log")
    assert json.loads(done.stdout) == {"checkpoint": digest}


FAILING = """
import sys
import flywheel.training.run as run
from flywheel.errors import TrainingError
from flywheel.training.__main__ import main

def fail(*_):
    try:
        raise ValueError("cannot learn MARKERTEXT")
    except ValueError as error:
        {how}

run._steps = fail
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("how", "status", "says"),
    [
        ("raise", 1, "error: ValueError at "),
        ("raise TrainingError('a row is of no use') from error", 2, "error: a row is of no use"),
        ("raise TrainingError('a row is of no use') from None", 2, "error: a row is of no use"),
    ],
    ids=["unforeseen", "cause", "context"],
)
def test_a_failure_over_a_row_is_told_without_the_row_also_to_dagster(
    plan_run: Callable[..., TrainSpec], tmp_path: Path, how: str, status: int, says: str
) -> None:
    command = [sys.executable, "-c", FAILING.format(how=how), "--spec", str(plan_run().write())]
    done, sent = _piped(command, tmp_path)
    assert done.returncode == status
    assert says in done.stderr and says in json.dumps(sent)
    assert "MARKERTEXT" not in done.stderr + done.stdout + json.dumps(sent)


def _piped(command: list[str], folder: Path) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Run a child as Dagster Pipes does; returns how it ended and the messages that it sent."""
    context, messages = folder / "context.json", folder / "messages.jsonl"
    messages.touch()
    nothing = dict.fromkeys(
        (
            "asset_keys",
            "code_version_by_asset_key",
            "provenance_by_asset_key",
            "partition_key",
            "partition_key_range",
            "partition_time_window",
            "job_name",
        )
    )
    context.write_text(json.dumps({**nothing, "run_id": "r", "retry_number": 0, "extras": {}}))
    done = subprocess.run(
        command,
        env={
            **os.environ,
            "DAGSTER_PIPES_CONTEXT": _pipes_param({"path": str(context)}),
            "DAGSTER_PIPES_MESSAGES": _pipes_param({"path": str(messages)}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done, [json.loads(line) for line in messages.read_text().splitlines()]


def _pipes_param(value: dict[str, Any]) -> str:
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


def test_nothing_but_the_child_loads_torch() -> None:
    code = (
        "import sys, flywheel.training.spec, flywheel.training.child, flywheel.training.checkpoint, "
        "flywheel.training.curve, flywheel.training.managed, flywheel.training.run; "
        "print([name for name in ('torch', 'transformers', 'matplotlib', 'dagster') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_ctrl_c_in_the_parent_stops_the_child_at_a_resume_point(plan_run: Callable[..., TrainSpec]) -> None:
    spec = plan_run(**{**LONG, "checkpoint_every": 1000})
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if line.startswith("step 1/"):
            raise KeyboardInterrupt

    assert run_child(spec.write(), on_line=on_line) == INTERRUPTED
    assert any("run the same again to go on" in line for line in lines)
    assert lines[-1].startswith("stopped; run the same command again")
    assert len(points(spec)) == 1
    assert not (spec.folder / "result.json").exists()
