"""Both jobs through Dagster, from log lines to a champion: what is shown, and how a loop ends that does not promote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from flywheel.loops.claims import claim

TAGS = {"flywheel/loop_id": "support_router/1", "flywheel/attempt": "2"}


@pytest.fixture
def judged(make_wheel: Any, judged_folder: Path) -> Any:
    """A wheel whose open loop, at attempt 2, has a decision record that says `promote`."""
    return make_wheel(like=judged_folder)


def materialized(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetMaterialization]:
    return {event.asset_key.path[-1]: event.materialization for event in result.get_asset_materialization_events()}


def checks(result: dg.ExecuteInProcessResult) -> list[tuple[bool, str]]:
    return [(check.passed, check.severity.value) for check in result.get_asset_check_evaluations()]


def observations(ui: Any) -> list[dict[str, Any]]:
    """What the champion's page shows for loops that ended without a promotion, oldest first."""
    key = dg.AssetKey([ui.wheel.task, "champion"])
    records = ui.instance.fetch_observations(key, limit=10, ascending=True).records
    found = [record.event_log_entry.asset_observation for record in records]
    return [{name: value.value for name, value in observation.metadata.items()} for observation in found]


def test_a_loop_run_promotes_and_every_asset_shows_its_digest(judged: Any, dagster_of: Any, reason: Any) -> None:
    ui = dagster_of(judged)
    result = ui.launch("loop", TAGS)
    assert result.success, reason(result)
    row = judged.loop()
    versions = {name: made.tags["dagster/data_version"] for name, made in materialized(result).items()}
    assert versions == {
        "dataset": row["dataset"],
        "candidate": row["candidate"],
        "evaluation": row["evaluation"],
        "champion": row["candidate"],
    }
    assert checks(result) == [(True, "WARN")]
    assert judged.champion().release == row["candidate"]
    assert observations(ui) == []
    assert row["actor"] != "test" or row["run_id"] == result.run_id


def test_a_rejection_is_a_green_run_with_its_reason_on_the_champions_page(
    judged: Any, dagster_of: Any, redecide: Any, reason: Any
) -> None:
    redecide(judged, verdict="reject", reasons=["gain 0.001 is below 0.01"])
    before = judged.champion()
    ui = dagster_of(judged)
    result = ui.launch("loop", TAGS)
    assert result.success, reason(result)
    assert set(materialized(result)) == {"dataset", "candidate", "evaluation"}
    assert checks(result) == [(False, "WARN")]
    ended = {"loop": "support_router/1", "verdict": "reject", "reasons": ["gain 0.001 is below 0.01"]}
    assert observations(ui) == [ended]
    assert (judged.loop()["state"], judged.loop()["verdict"]) == ("finished", "reject")
    assert judged.champion() == before


def test_invalid_evidence_is_a_red_run_that_ends_its_loop(
    judged: Any, dagster_of: Any, redecide: Any, reason: Any
) -> None:
    redecide(judged, verdict="invalid", reasons=["a score is missing"])
    before = judged.champion()
    result = dagster_of(judged).launch("loop", TAGS)
    assert not result.success
    assert checks(result) == [(False, "ERROR")]
    assert "champion" not in materialized(result)
    row = judged.loop()
    assert (row["state"], row["verdict"], row["reasons"]) == ("finished", "invalid", ["a score is missing"])
    assert judged.champion() == before


def test_a_loop_without_enough_gate_items_is_a_green_run_that_says_how_many_are_missing(
    make_wheel: Any, dagster_of: Any, reason: Any
) -> None:
    wheel = make_wheel()
    wheel.talk(0, 100, reviewed=False)
    ui = dagster_of(wheel)
    assert ui.launch("intake").success
    assert claim(wheel.registry, wheel.task, min_labels=60) is not None
    result = ui.launch("loop", TAGS | {"flywheel/attempt": "1"})
    assert result.success, reason(result)
    assert materialized(result) == {}
    (shown,) = observations(ui)
    assert shown["verdict"] == "inconclusive"
    assert "15 more audited interactions need a label from reviewer" in shown["reasons"][0]
    assert wheel.loop()["state"] == "finished"


def test_the_intake_job_reads_the_log_and_shows_that_the_counts_add_up(
    make_wheel: Any, dagster_of: Any, reason: Any
) -> None:
    wheel = make_wheel()
    wheel.talk(0, 20)
    ui = dagster_of(wheel)
    result = ui.launch("intake")
    assert result.success, reason(result)
    shown = {name: value.value for name, value in materialized(result)["interactions"].metadata.items()}
    counted = {name: shown[f"intake/{name}"] for name in ("read", "kept", "duplicate", "quarantined", "skipped")}
    assert counted.pop("read") == sum(counted.values()) == counted["kept"]
    assert shown["dagster/row_count"] == 20
    assert materialized(result)["labels"].metadata["labels/new_versions"].value == 20
    again = materialized(ui.launch("intake"))
    version = "dagster/data_version"
    assert again["interactions"].tags[version] == materialized(result)["interactions"].tags[version]
    assert again["labels"].metadata["labels/new_versions"].value == 0


def test_labels_lead_to_the_page_where_a_person_makes_them(make_wheel: Any, dagster_of: Any, gateway_of: Any) -> None:
    wheel = make_wheel()
    wheel.set(engine="http://127.0.0.1:9/v1")  # a gateway without a model will do
    wheel.talk(0, 2)
    ui = dagster_of(wheel)

    def link() -> Any:
        return materialized(ui.launch("intake"))["labels"].metadata["review"].value

    assert link() == "http://127.0.0.1:0/review?task=support_router"
    url = gateway_of(wheel.config)
    assert link() == f"{url}/review?task=support_router"


def test_no_text_of_the_log_reaches_dagster(judged: Any, dagster_of: Any) -> None:
    ui = dagster_of(judged)
    runs = [ui.launch("intake"), ui.launch("loop", TAGS)]
    events = json.dumps([entry.to_json() for run in runs for entry in ui.instance.all_logs(run.run_id)])
    assert len(events) > 10_000
    for word in ("apple", "cherry", "ocean", "jeans", "user-", "chatcmpl-"):
        assert word not in events, word


def test_a_run_says_which_process_it_is(judged: Any, dagster_of: Any) -> None:
    from assets.process import PROCESS_TAG, tagged_process_alive

    ui = dagster_of(judged)
    result = ui.launch("intake")
    run = ui.instance.get_run_by_id(result.run_id)
    assert run is not None and tagged_process_alive(run.tags[PROCESS_TAG])
    boot, pid, _ = run.tags[PROCESS_TAG].split("/")
    assert not tagged_process_alive(f"{boot}/{pid}/1")
    assert not tagged_process_alive(f"another-boot/{pid}/{run.tags[PROCESS_TAG].split('/')[2]}")
