"""Sensor and schedule of a task that an engine answers which is not ours."""

from __future__ import annotations

from typing import Any

import dagster as dg
import sqlalchemy as sa

from assets.deployment import Deployment
from flywheel.definitions import build_definitions
from flywheel.store.registry import schema

WHY = "task support_router is answered by engine http://vllm:8000/v1"


def test_neither_asks_for_a_loop_however_many_labels_wait(daemon: Any, versions: Any) -> None:
    daemon.wheel.set(engine="http://vllm:8000/v1")
    versions(daemon.wheel.registry, 100)
    tick = daemon.tick("support_router_loop_sensor")
    assert not tick.run_requests and WHY in str(tick.skip_message)
    (schedule,) = build_definitions(daemon.wheel.config).schedules or ()
    assert isinstance(schedule, dg.ScheduleDefinition)
    resources = {"deployment": Deployment()}
    with dg.build_schedule_context(instance=daemon.instance, resources=resources) as context:
        asked = schedule.evaluate_tick(context)
    assert not asked.run_requests and WHY in str(asked.skip_message)
    with daemon.wheel.registry.read() as tx:
        assert tx.rows(sa.select(schema.loops)) == []
