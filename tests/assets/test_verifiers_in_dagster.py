"""Verifiers inside the asset ``labels``: they speak before labels are made, and the page shows what they said."""

from __future__ import annotations

import json
from typing import Any

from flywheel.labels import current_labels

LABELS = {"maturity_hours": 0, "audit_share": 0}


def test_the_labels_asset_shows_what_verifiers_said_and_none_of_the_text(
    make_wheel: Any, dagster_of: Any, traffic_of: Any, reason: Any
) -> None:
    wheel = make_wheel()
    wheel.set(labels={**LABELS, "verifiers": [{"name": "known_queue", "regex": "billing"}]})
    traffic = traffic_of(wheel.home)
    traffic.write(traffic.call(0, "billing"), traffic.call(1, "MARKERTEXT"))
    ui = dagster_of(wheel)
    result = ui.launch("intake", {})
    assert result.success, reason(result)
    made = {event.asset_key.path[-1]: event.materialization for event in result.get_asset_materialization_events()}
    shown = made["labels"].metadata
    (row,) = [record.data for record in shown["verifiers"].records]
    assert (row["name"], row["right"], row["wrong"]) == ("known_queue", 1, 1)
    assert shown["verifiers/said"].value == 2
    assert {label["label_source"] for label in current_labels(wheel.home, wheel.registry, wheel.task)} == {"verifier"}
    events = json.dumps([entry.to_json() for entry in ui.instance.all_logs(result.run_id)])
    assert "MARKERTEXT" not in events


def test_a_broken_verifier_makes_a_red_run_that_says_which(
    make_wheel: Any, dagster_of: Any, traffic_of: Any, reason: Any
) -> None:
    wheel = make_wheel()
    (wheel.folder / "verify_red.py").write_text("def verify(messages, answer): raise KeyError('MARKERTEXT')\n")
    wheel.set(labels={**LABELS, "verifiers": [{"name": "own", "python": "verify_red:verify"}]})
    traffic = traffic_of(wheel.home)
    traffic.write(*(traffic.call(number) for number in range(20)))
    ui = dagster_of(wheel)
    result = ui.launch("intake", {})
    assert not result.success and "verifier own: each of the first 20 answers raised (KeyError 20)" in reason(result)
    events = json.dumps([entry.to_json() for entry in ui.instance.all_logs(result.run_id)])
    assert "MARKERTEXT" not in events
