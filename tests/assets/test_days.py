"""``interactions`` by day: a run that follows shows the days it touched, a run for days reads just these again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from assets.days import FIRST_TAG, LAST_TAG, SOURCE_TAG
from flywheel.intake import import_path, intake_digest, run_intake
from flywheel.store.segments import read_rows

DAY = 86_400
VERSION = "dagster/data_version"


@pytest.fixture
def ui(make_wheel: Any, traffic_of: Any, dagster_of: Any) -> Any:
    """Dagster over a wheel with ``traffic``."""
    found = dagster_of(make_wheel())
    found.traffic = traffic_of(found.wheel.home)
    return found


def follow(ui: Any, first: str, last: str) -> Any:
    return ui.launch("intake", {SOURCE_TAG: "gateway", FIRST_TAG: first, LAST_TAG: last})


def days(result: dg.ExecuteInProcessResult) -> dict[str | None, dg.AssetMaterialization]:
    made = [event.materialization for event in result.get_asset_materialization_events()]
    return {one.partition: one for one in made if one.asset_key.path[-1] == "interactions"}


def value(made: dg.AssetMaterialization, name: str) -> Any:
    return made.metadata[name].value


def test_a_run_that_follows_shows_the_days_that_it_touched_and_those_up_to_today(ui: Any, reason: Any) -> None:
    today = datetime.now(UTC).date().isoformat()
    ui.traffic.write(ui.traffic.call(0), ui.traffic.call(1), ui.traffic.call(2 * DAY), ui.traffic.feedback(0, text="x"))
    result = follow(ui, today, today)
    assert result.success, reason(result)
    found = days(result)
    assert set(found) == {"2025-03-01", "2025-03-03", today}
    assert (value(found["2025-03-01"], "dagster/partition_row_count"), value(found["2025-03-01"], "day/feedback")) == (
        2,
        1,
    )
    assert value(found[today], "dagster/partition_row_count") == 0
    assert (value(found[today], "intake/read"), value(found[today], "dagster/row_count")) == (4, 3)
    assert len(result.get_asset_materialization_events()) == 4, "and labels once, of no day"
    ui.traffic.write(ui.traffic.call(2 * DAY + 1))
    again = days(follow(ui, today, today))
    assert set(again) == {"2025-03-03", today}
    assert again["2025-03-03"].tags[VERSION] != found["2025-03-03"].tags[VERSION]
    assert again[today].tags[VERSION] == found[today].tags[VERSION], "nothing of that day changed"


def test_a_run_without_days_reads_all_sources_and_shows_the_days_it_touched(ui: Any) -> None:
    ui.traffic.write(ui.traffic.call(0))
    assert set(days(ui.launch("intake"))) == {None, "2025-03-01"}
    assert set(days(ui.launch("intake"))) == {None}


def test_days_that_came_in_elsewhere_show_after_the_next_run(ui: Any, tmp_path: Any) -> None:
    at = ui.wheel
    log = ui.traffic.write(ui.traffic.call(0), ui.traffic.call(DAY))
    path = log.rename(tmp_path / "calls.jsonl")  # what lies in the home itself is never imported
    import_path(at.config, at.home, at.registry, at.task, path, fmt="gateway")
    follow(ui, "2026-01-01", "2026-01-01")
    key = dg.AssetKey([at.task, "interactions"])
    assert ui.instance.get_materialized_partitions(key) == {"2025-03-01", "2025-03-02", "2026-01-01"}


def test_a_time_that_cannot_be_true_makes_no_day(ui: Any) -> None:
    ui.traffic.write(ui.traffic.call(0, ts="1970-01-05T00:00:00Z"), ui.traffic.call(1, ts=None), ui.traffic.call(2))
    assert set(days(ui.launch("intake"))) == {None, "2025-03-01"}


def test_a_backfill_of_a_range_is_one_run_that_adds_what_is_missing(ui: Any, reason: Any) -> None:
    ui.traffic.write(*(ui.traffic.call(n * DAY) for n in range(5)))
    result = ui.launch("intake", {FIRST_TAG: "2025-03-02", LAST_TAG: "2025-03-03"})
    assert result.success, reason(result)
    found = days(result)
    assert set(found) == {"2025-03-02", "2025-03-03"}
    assert [value(made, "dagster/partition_row_count") for made in found.values()] == [1, 1]
    assert (value(found["2025-03-02"], "intake/read"), value(found["2025-03-02"], "intake/kept")) == (5, 2)
    assert len(read_rows(ui.wheel.home, ui.wheel.registry, "interactions", ui.wheel.task, "ts")) == 2
    again = days(ui.launch("intake", {FIRST_TAG: "2025-03-02", LAST_TAG: "2025-03-03"}))
    assert value(again["2025-03-03"], "intake/duplicate") == 2
    assert again["2025-03-02"].tags[VERSION] == found["2025-03-02"].tags[VERSION]


def test_a_day_picked_in_the_ui_changes_nothing_that_was_there(ui: Any, reason: Any) -> None:
    at = ui.wheel
    at.talk(0, 5)
    run_intake(at.config, at.home, at.registry, at.task)
    before = intake_digest(at.home, at.registry, at.task)
    job = ui.definitions().resolve_job_def(f"{at.task}_intake")
    result = job.execute_in_process(instance=ui.instance, partition_key="2025-03-01", raise_on_error=False)
    assert result.success, reason(result)
    assert set(days(result)) == {"2025-03-01"}
    assert result.get_asset_materialization_events()[-1].asset_key.path[-1] == "labels"
    assert intake_digest(at.home, at.registry, at.task) == before


def test_the_asset_is_partitioned_by_day_from_the_first_day_to_today_and_labels_is_not(ui: Any) -> None:
    ui.wheel.set(first_day="2025-02-01")
    graph = ui.definitions().resolve_asset_graph()
    node = graph.get(dg.AssetKey([ui.wheel.task, "interactions"]))
    keys = node.partitions_def.get_partition_keys()
    assert (keys[0], keys[-1]) == ("2025-02-01", datetime.now(UTC).date().isoformat())
    assert node.backfill_policy == dg.BackfillPolicy.single_run()
    assert graph.get(dg.AssetKey([ui.wheel.task, "labels"])).partitions_def is None
