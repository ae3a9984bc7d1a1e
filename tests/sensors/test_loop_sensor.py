"""What turns the wheel: no loop is started twice, none is skipped, whatever is lost or dies."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from assets.process import PROCESS_TAG
from flywheel.loops.claims import enter
from flywheel.store.registry import schema

Status = dg.DagsterRunStatus
TRAFFIC_START = datetime(2025, 3, 1, 12, tzinfo=UTC)


def loops(daemon: Any) -> list[tuple[str, str, int]]:
    table = schema.loops
    with daemon.wheel.registry.read() as tx:
        return [(row["loop_id"], row["state"], row["attempt"]) for row in tx.rows(sa.select(table))]


def skipped(daemon: Any, sensor: str = "support_router_loop_sensor") -> str:
    tick = daemon.tick(sensor)
    assert not tick.run_requests
    return str(tick.skip_message)


def test_the_sensor_waits_for_enough_label_versions_then_asks_for_the_first_attempt(daemon: Any, versions: Any) -> None:
    versions(daemon.wheel.registry, 9)
    assert skipped(daemon) == "9 of 10 new label versions"
    assert loops(daemon) == []
    versions(daemon.wheel.registry, 10)
    (request,) = daemon.tick("support_router_loop_sensor").run_requests
    assert request.run_key == "support_router/1#1"
    ours = {name: value for name, value in request.tags.items() if name.startswith("flywheel/")}
    assert ours == {"flywheel/loop_id": "support_router/1", "flywheel/attempt": "1"}


def test_a_duplicate_tick_a_lost_cursor_and_a_new_instance_ask_for_the_same_run(daemon: Any, versions: Any) -> None:
    versions(daemon.wheel.registry, 10)
    asked = [daemon.keys(), daemon.keys(), daemon.keys(cursor="something old")]
    daemon.restart("second")
    versions(daemon.wheel.registry, 50)
    asked.append(daemon.keys())
    assert asked == [["support_router/1#1"]] * 4
    assert loops(daemon) == [("support_router/1", "claimed", 1)]


@pytest.mark.parametrize("status", [Status.NOT_STARTED, Status.STARTING, Status.STARTED])
def test_nothing_is_asked_for_while_the_attempts_run_is_under_way(daemon: Any, versions: Any, status: Status) -> None:
    versions(daemon.wheel.registry, 10)
    daemon.keys()
    daemon.loop_run(status=status)
    assert skipped(daemon) == "support_router/1 attempt 1 is under way"
    assert loops(daemon) == [("support_router/1", "claimed", 1)]


@pytest.mark.parametrize("status", [Status.FAILURE, Status.CANCELED, Status.SUCCESS])
def test_a_run_that_ended_without_finishing_its_loop_gives_way_to_the_next_attempt(
    daemon: Any, versions: Any, status: Status
) -> None:
    versions(daemon.wheel.registry, 10)
    daemon.keys()
    daemon.loop_run(status=status)
    assert daemon.keys() == ["support_router/1#2"]
    assert daemon.keys() == ["support_router/1#2"]


def test_a_run_whose_process_is_dead_is_buried_and_its_attempt_given_up(daemon: Any, versions: Any, kill: Any) -> None:
    versions(daemon.wheel.registry, 10)
    daemon.keys()
    run = daemon.loop_run()
    process, name = daemon.worker(run.run_id)
    daemon.instance.add_run_tags(run.run_id, {PROCESS_TAG: name})
    assert skipped(daemon) == "support_router/1 attempt 1 is under way"
    assert daemon.status(run) == Status.STARTED
    kill(process)
    assert daemon.keys() == ["support_router/1#2"]
    assert daemon.status(run) == Status.FAILURE
    assert loops(daemon) == [("support_router/1", "claimed", 2)]


def test_after_three_attempts_the_loop_fails_and_the_next_one_skips_no_labels(daemon: Any, versions: Any) -> None:
    versions(daemon.wheel.registry, 10)
    asked, runs = [], []
    for attempt in (1, 2, 3):
        asked += daemon.keys()
        runs.append(daemon.loop_run(attempt, Status.FAILURE).run_id)
    assert skipped(daemon) == "0 of 10 new label versions"
    assert asked == [f"support_router/1#{attempt}" for attempt in (1, 2, 3)]
    assert loops(daemon) == [("support_router/1", "failed", 3)]
    row = daemon.wheel.loop()
    assert row["reasons"] == [f"attempt {n}: run {run_id} ended early" for n, run_id in enumerate(runs, 1)]
    versions(daemon.wheel.registry, 20)
    assert daemon.keys() == ["support_router/2#1"]
    assert (daemon.wheel.loop(2)["from_seq"], daemon.wheel.loop(2)["to_seq"]) == (0, 20)


def test_the_reason_names_the_run_of_that_attempt(daemon: Any, versions: Any, kill: Any) -> None:
    versions(daemon.wheel.registry, 10)
    daemon.keys()
    first = daemon.loop_run(status=Status.FAILURE)
    kill(daemon.worker(first.run_id)[0])
    daemon.keys()
    second = daemon.loop_run(2, Status.FAILURE)  # failed before it came to a stage
    daemon.keys()
    assert daemon.wheel.loop()["reasons"] == [
        f"attempt 1: run {first.run_id} ended early",
        f"attempt 2: run {second.run_id} ended early",
    ]


def test_a_loop_that_someone_runs_by_hand_is_left_to_them_until_they_die(daemon: Any, versions: Any, kill: Any) -> None:
    versions(daemon.wheel.registry, 10)
    daemon.keys()
    process, _ = daemon.worker("cli-1")
    assert skipped(daemon) == "support_router/1 attempt 1 is under way"
    kill(process)
    assert daemon.keys() == ["support_router/1#2"]


def test_a_hand_run_that_died_leaves_the_attempt_to_its_queued_run(daemon: Any, versions: Any, kill: Any) -> None:
    versions(daemon.wheel.registry, 10)
    daemon.keys()
    run = daemon.loop_run(status=Status.NOT_STARTED)
    kill(daemon.worker("by hand")[0])
    assert skipped(daemon) == "support_router/1 attempt 1 is under way"
    registry, task = daemon.wheel.registry, daemon.wheel.task
    assert enter(registry, task, run.run_id, loop_id="support_router/1", attempt=1).attempt == 1


def test_a_ghost_without_a_process_tag_is_buried_only_before_the_daemon_starts(daemon: Any) -> None:
    from sensors.ghosts import bury

    run = daemon.run("intake", Status.STARTED)
    assert bury(daemon.instance, untagged=False) == []
    assert bury(daemon.instance, untagged=True) == [run.run_id]
    assert daemon.status(run) == Status.FAILURE


def test_the_schedule_starts_a_loop_over_whatever_waits_by_the_same_claim(daemon: Any, versions: Any) -> None:
    from flywheel.definitions import build_definitions

    (schedule,) = build_definitions(daemon.wheel.config).schedules or ()
    assert isinstance(schedule, dg.ScheduleDefinition)

    def tick() -> Any:
        from assets.deployment import Deployment

        with dg.build_schedule_context(instance=daemon.instance, resources={"deployment": Deployment()}) as context:
            return schedule.evaluate_tick(context)

    assert tick().skip_message == "no new label versions"
    versions(daemon.wheel.registry, 3)
    for _ in range(2):
        assert [request.run_key for request in tick().run_requests] == ["support_router/1#1"]
    assert daemon.keys() == ["support_router/1#1"], "the sensor takes care of what the schedule claimed"
    daemon.loop_run(status=Status.NOT_STARTED)
    assert tick().skip_message == "support_router/1 is under way"


def test_the_intake_sensor_starts_a_run_when_the_log_has_grown(daemon: Any) -> None:
    sensor = "support_router_intake_sensor"
    daemon.wheel.labelled()
    assert skipped(daemon, sensor) == "nothing new in the logs, nothing has matured"
    daemon.wheel.talk(0, 2)
    assert len(daemon.tick(sensor).run_requests) == 1
    run = daemon.run("intake", Status.NOT_STARTED)
    assert skipped(daemon, sensor) == "an intake run is under way"
    daemon.wheel.labelled()
    daemon.instance.report_run_failed(run)
    assert skipped(daemon, sensor) == "nothing new in the logs, nothing has matured"


def test_the_intake_sensor_starts_a_run_when_feedback_has_matured(daemon: Any) -> None:
    sensor = "support_router_intake_sensor"
    age_s = (datetime.now(UTC) - TRAFFIC_START).total_seconds()
    daemon.wheel.set(labels={"maturity_hours": (age_s + 2.5) / 3600})
    daemon.wheel.talk(0, 1)
    daemon.wheel.labelled()
    assert skipped(daemon, sensor) == "nothing new in the logs, nothing has matured"
    time.sleep(2.6)
    assert len(daemon.tick(sensor).run_requests) == 1
    daemon.wheel.labelled()
    assert skipped(daemon, sensor) == "nothing new in the logs, nothing has matured"


def test_intake_pauses_after_a_run_and_longer_while_a_loop_is_open(daemon: Any, versions: Any) -> None:
    sensor = "support_router_intake_sensor"
    daemon.wheel.set(trigger={"min_labels": 10, "intake_seconds": 60})
    daemon.wheel.talk(0, 2)
    assert len(daemon.tick(sensor).run_requests) == 1, "the first run waits for nothing"
    daemon.instance.report_run_failed(daemon.run("intake", Status.STARTED))
    assert len(daemon.tick(sensor).run_requests) == 1, "nor does the run after one that was killed"
    daemon.run("intake", Status.SUCCESS)
    assert skipped(daemon, sensor) == "less than 60 s since the last intake run"
    versions(daemon.wheel.registry, 10)
    daemon.keys()
    assert skipped(daemon, sensor) == "less than 240 s since the last intake run"


def test_no_loop_is_asked_for_while_an_erasure_is_unfinished(daemon: Any, versions: Any) -> None:
    versions(daemon.wheel.registry, 10)
    row = {"erasure_id": "erasure-1", "user_key": "k", "state": "running", "counts": {}, "tainted": []}
    with daemon.wheel.registry.write() as tx:
        tx.execute(sa.insert(schema.erasures).values(**row, **tx.stamp()))
    assert skipped(daemon) == "erasure-1 is unfinished; `flywheel erase` again finishes it"
    assert loops(daemon) == []
    with daemon.wheel.registry.write() as tx:
        tx.execute(sa.update(schema.erasures).values(state="done"))
    assert daemon.keys() == ["support_router/1#1"]
