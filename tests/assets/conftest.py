"""Materialising the real assets of a `Wheel` on a Dagster instance that lives in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest


@dataclass
class Dagster:
    """What a person does in the UI: launch a job, materialise some assets, with or without a loop's tags."""

    instance: dg.DagsterInstance
    wheel: Any

    def materialize(self, *stages: str, tags: dict[str, str] | None = None) -> dg.ExecuteInProcessResult:
        """Materialise stages by name, as the UI's button does."""
        keys = [dg.AssetKey([self.wheel.task, stage]) for stage in stages]
        job = self.definitions().resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, asset_selection=keys, tags=tags, raise_on_error=False)

    def launch(self, job: str, tags: dict[str, str] | None = None) -> dg.ExecuteInProcessResult:
        """Run ``intake`` or ``loop`` of the task."""
        definition = self.definitions().resolve_job_def(f"{self.wheel.task}_{job}")
        return definition.execute_in_process(instance=self.instance, tags=tags, raise_on_error=False)

    def definitions(self) -> dg.Definitions:
        from flywheel.definitions import build_definitions

        return build_definitions(self.wheel.config)


@pytest.fixture
def dagster_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], Dagster]]:
    """``dagster_of(wheel)`` -> a fresh `Dagster` whose deployment is the wheel's."""
    instances = []

    def make(wheel: Any) -> Dagster:
        monkeypatch.setenv("FLYWHEEL_CONFIG", str(wheel.path))
        instances.append(dg.DagsterInstance.ephemeral())
        return Dagster(instances[-1], wheel)

    yield make
    for instance in instances:
        instance.dispose()


def reason(result: dg.ExecuteInProcessResult) -> str:
    """Why the run failed, as the UI shows it: descriptions and the chain of errors of its failed steps."""
    said = []
    for event in result.all_events:
        if event.event_type_value != "STEP_FAILURE":
            continue
        data = event.step_failure_data
        said.append((data.user_failure_data.description or "") if data.user_failure_data else "")
        error = data.error
        while error is not None:
            said.append(error.message)
            error = error.cause
    return "\n".join(said)


@pytest.fixture(name="reason")
def _reason() -> Callable[[dg.ExecuteInProcessResult], str]:
    return reason
