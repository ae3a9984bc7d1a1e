"""A sensor per source: each starts intake of its own source, one run at a time, and keeps no other from its turn."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from flywheel.config import parse_config
from flywheel.definitions import build_definitions
from flywheel.store.registry import schema

Status = dg.DagsterRunStatus
GATEWAY, CHATS, MORE = (f"support_router_intake{name}_sensor" for name in ("", "_exports_chats", "_exports_more_jsonl"))
FIRST, LAST = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


@pytest.fixture
def sources(daemon: Any) -> Any:
    """A daemon whose task has two places with logs besides the gateway's, one record in each."""
    folder = Path(daemon.wheel.folder) / "exports"
    (folder / "chats").mkdir(parents=True)
    daemon.wheel.set(logs=["exports/chats", "exports/more.jsonl"])

    def export(name: str, *texts: str) -> None:
        with (folder / name).open("a") as file:
            for text in texts:
                said = [{"role": "user", "content": text}, {"role": "assistant", "content": "hello"}]
                file.write(json.dumps({"messages": said}) + "\n")

    daemon.export = export
    daemon.wheel.labelled()
    return daemon


def asked(daemon: Any, sensor: str) -> Any:
    """The tags of the run that a sensor asks for, or why it asks for none."""
    tick = daemon.tick(sensor)
    return tick.run_requests[0].tags if tick.run_requests else str(tick.skip_message)


def test_each_source_has_a_sensor_with_a_readable_name_of_its_own(tmp_path: Path) -> None:
    logs = ["exports/langfuse", "s3://acme/llm/", "other/exports/langfuse", "calls-2026.jsonl.gz"]
    config = parse_config({"tasks": {"router": {"base": "tiny", "logs": logs}}}, tmp_path / "flywheel.yaml")
    defs = build_definitions(config)
    dg.Definitions.validate_loadable(defs)
    names = [sensor.name for sensor in defs.sensors or () if "intake" in sensor.name]
    assert names[:3] == [
        "router_intake_sensor",
        "router_intake_exports_langfuse_sensor",
        "router_intake_acme_llm_sensor",
    ]
    assert names[3].startswith("router_intake_exports_langfuse_sensor_")
    assert names[4].endswith("calls_2026_jsonl_gz_sensor")
    assert [sensor.name for sensor in build_definitions(config).sensors or () if "intake" in sensor.name] == names


def test_a_sensor_asks_for_a_run_of_its_own_source_alone(sources: Any) -> None:
    assert [asked(sources, name) for name in (CHATS, MORE)] == ["nothing new in the logs"] * 2
    sources.export("chats/a.jsonl", "one")
    assert asked(sources, CHATS)["flywheel/source"].endswith("/exports/chats")
    assert asked(sources, MORE) == "nothing new in the logs"
    assert asked(sources, GATEWAY) == "nothing new in the logs, nothing has matured"
    sources.wheel.talk(0, 1)
    assert asked(sources, GATEWAY)["flywheel/source"] == "gateway"


def test_one_intake_run_per_task_at_a_time_whatever_its_source(sources: Any) -> None:
    sources.export("chats/a.jsonl", "one")
    sources.export("more.jsonl", "two")
    run = sources.run("intake", Status.STARTED, {"flywheel/source": "gateway"})
    assert [asked(sources, name) for name in (CHATS, MORE)] == ["an intake run is under way"] * 2
    sources.instance.report_run_failed(run)
    assert "flywheel/source" in asked(sources, CHATS) and "flywheel/source" in asked(sources, MORE)


def test_the_pause_after_a_source_keeps_no_other_source_waiting(sources: Any) -> None:
    sources.wheel.set(trigger={"min_labels": 10, "intake_seconds": 60})
    sources.export("chats/a.jsonl", "one")
    sources.export("more.jsonl", "two")
    chats = asked(sources, CHATS)["flywheel/source"]
    sources.run("intake", Status.SUCCESS, {"flywheel/source": chats})
    assert asked(sources, CHATS) == "less than 60 s since the last intake run"
    assert "flywheel/source" in asked(sources, MORE)
    sources.run("intake", Status.SUCCESS)
    assert asked(sources, MORE) == "less than 60 s since the last intake run", (
        "a run of all sources was one of this too"
    )


def test_a_lost_cursor_or_another_tick_asks_for_no_second_run_once_it_was_read(sources: Any) -> None:
    from flywheel.intake import run_intake

    sources.export("chats/a.jsonl", "one")
    source = asked(sources, CHATS)["flywheel/source"]
    wheel = sources.wheel
    run_intake(wheel.config, wheel.home, wheel.registry, wheel.task, source=source)
    sources.restart("second")
    for cursor in (None, "something old"):
        assert not sources.tick(CHATS, cursor).run_requests


def test_the_days_of_a_run_reach_from_the_last_one_of_its_source_to_today(sources: Any) -> None:
    today = datetime.now(UTC).date()
    sources.export("chats/a.jsonl", "one")
    tags = asked(sources, CHATS)
    assert (tags[FIRST], tags[LAST]) == (today.isoformat(), today.isoformat())
    earlier = datetime.now(UTC) - timedelta(days=3)
    row = {"task": "support_router", "source": tags["flywheel/source"], "position": {"files": {}}, "watermark": ""}
    with sources.wheel.registry.write() as tx:
        tx.execute(sa.insert(schema.sources).values(**row, **tx.stamp() | {"at": earlier.isoformat()}))
    assert asked(sources, CHATS)[FIRST] == earlier.date().isoformat()
    sources.wheel.set(first_day=(today - timedelta(days=1)).isoformat())
    assert asked(sources, CHATS)[FIRST] == (today - timedelta(days=1)).isoformat()
