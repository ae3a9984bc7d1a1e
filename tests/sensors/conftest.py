"""Ticks of the real sensors on a Dagster instance in a temporary folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.deployment import Deployment
from flywheel.definitions import build_definitions

ENTER = """
import os, sys
from flywheel.loops.claims import enter
from flywheel.store.home import boot_id, process_started
from flywheel.store.registry import Registry

enter(Registry(sys.argv[1]), "support_router", sys.argv[2])
print(f"{boot_id()}/{os.getpid()}/{process_started(os.getpid())}", flush=True)
sys.stdin.readline()
"""


@dataclass
class Daemon:
    """The instance, and what the daemon does with it: tick, launch, and lose runs."""

    wheel: Any
    folder: Path
    instance: dg.DagsterInstance = field(init=False)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart("first")

    def restart(self, name: str) -> None:
        """Go on with a new instance: no cursors, no runs."""
        (self.folder / name).mkdir()
        self.instance = dg.DagsterInstance.local_temp(str(self.folder / name))

    def tick(self, sensor: str, cursor: str | None = None) -> Any:
        """One evaluation; returns Dagster's record of what it asked for or why it did not."""
        defs = build_definitions(self.wheel.config)
        resources = {"deployment": Deployment()}
        with dg.build_sensor_context(instance=self.instance, cursor=cursor, resources=resources) as context:
            return defs.resolve_sensor_def(sensor).evaluate_tick(context)

    def keys(self, cursor: str | None = None) -> list[str]:
        """The run keys that the loop sensor asks for now."""
        return [request.run_key for request in self.tick("support_router_loop_sensor", cursor).run_requests]

    def run(self, job: str, status: dg.DagsterRunStatus, tags: dict[str, str] | None = None) -> dg.DagsterRun:
        """A run of a job as the launcher leaves it."""
        definition = build_definitions(self.wheel.config).resolve_job_def(f"support_router_{job}")
        return self.instance.create_run_for_job(definition, tags={**definition.tags, **(tags or {})}, status=status)

    def loop_run(self, attempt: int = 1, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED) -> dg.DagsterRun:
        """The run of an attempt of the first loop."""
        tags = {"flywheel/loop_id": "support_router/1", "flywheel/attempt": str(attempt)}
        return self.run("loop", status, tags)

    def worker(self, run_id: str) -> tuple[subprocess.Popen[str], str]:
        """A live process that has entered the open loop for a run, and its name as in the run's process tag."""
        command = [sys.executable, "-c", ENTER, self.wheel.registry.url, run_id]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    def status(self, run: dg.DagsterRun) -> dg.DagsterRunStatus:
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found.status


@pytest.fixture
def daemon(make_wheel: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A daemon for an empty wheel that wants 10 label versions."""
    wheel = make_wheel()
    wheel.set(trigger={"min_labels": 10, "cron": "0 3 * * *", "intake_seconds": 0})
    monkeypatch.setenv("FLYWHEEL_CONFIG", str(wheel.path))
    (tmp_path / "dagster").mkdir()
    made = Daemon(wheel, tmp_path / "dagster")
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()


@pytest.fixture
def kill() -> Callable[[subprocess.Popen[str]], None]:
    """End a process as a power cut would, and wait until it is gone."""

    def end(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()

    return end
