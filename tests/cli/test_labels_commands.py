"""``flywheel labels``: what stands, what verifiers say, and what a judge's word is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def routed(make_wheel: Any, traffic_of: Any) -> Any:
    """A wheel with two answers, one corrected by a reviewer, and a verifier."""
    wheel = make_wheel()
    labels = {"maturity_hours": 0, "audit_share": 0, "verifiers": [{"name": "known_queue", "regex": "billing|sales"}]}
    wheel.set(labels=labels)
    traffic = traffic_of(wheel.home)
    by = {"source": "reviewer", "author": "ann"}
    traffic.write(traffic.call(0, "billing"), traffic.call(1, "MARK"), traffic.feedback(1, "label", text="sales", **by))
    return wheel


def test_taking_in_lets_verifiers_speak_before_labels_are_made(flywheel: Any, routed: Any) -> None:
    done = flywheel("intake", "run", "-t", routed.task, "-c", routed.path, "--json")
    assert done.json["labels"]["total"] == 2
    again = flywheel("labels", "verify", "-t", routed.task, "-c", routed.path, "--json").json
    assert again["authors"] == [{"source": "verifier", "name": "known_queue", "words": {}, "errors": {}}]


def test_verify_says_what_each_found_and_quotes_nothing(flywheel: Any, routed: Any) -> None:
    from flywheel.intake import run_intake

    run_intake(routed.config, routed.home, routed.registry, routed.task)
    shown = flywheel("labels", "verify", "-t", routed.task, "-c", routed.path)
    assert shown.code == 0 and "known_queue" in shown.out and "new label versions: 2" in shown.out
    assert "MARK" not in shown.out + shown.err


def test_labels_are_listed_with_their_reasons_the_newest_first(flywheel: Any, routed: Any) -> None:
    at = ("-t", routed.task, "-c", routed.path)
    assert "no labels" in flywheel("labels", "list", *at).out
    flywheel("intake", "run", *at)
    rows = flywheel("labels", "list", *at, "--json").json
    assert [row["seq"] for row in rows] == [2, 1] and all(row["reasons"] for row in rows)
    assert [row["seq"] for row in flywheel("labels", "list", *at, "--limit", "1", "--json").json] == [2]
    assert {row["use"] for row in flywheel("labels", "list", *at, "--use", "sft", "--json").json} == {"sft"}
    assert flywheel("labels", "list", *at, "--use", "eval", "--json").json == []
    assert rows[0]["target_id"] in flywheel("labels", "list", *at).out


def test_judges_are_shown_with_their_agreement(flywheel: Any, routed: Any, traffic_of: Any) -> None:
    at = ("-t", routed.task, "-c", routed.path)
    assert "no judge has said anything" in flywheel("labels", "judges", *at).out
    traffic = traffic_of(routed.home)
    by = {"source": "judge", "author": "other"}
    traffic.write(traffic.feedback(1, "outcome", value=False, **by), traffic.feedback(0, "outcome", value=True, **by))
    flywheel("intake", "run", *at)
    (row,) = flywheel("labels", "judges", *at, "--json").json
    assert (row["judged"], row["compared"], row["agreed"]) == (2, 1, 1)
    assert (row["verifiers_compared"], row["verifiers_agreed"], row["verifiers_kappa"]) == (2, 2, 1.0)
    assert "1 of 1" in flywheel("labels", "judges", *at).out


def test_config_check_loads_the_verifiers(flywheel: Any) -> None:
    entry = "{name: shape, schema: answer.json}"
    Path("flywheel.yaml").write_text(f"tasks: {{router: {{base: tiny, labels: {{verifiers: [{entry}]}}}}}}")
    failed = flywheel("config", "check")
    assert failed.code == 2 and "verifier shape: " in failed.err and "answer.json: No such file" in failed.err
    Path("answer.json").write_text('{"type": "text"}')
    failed = flywheel("config", "check")
    assert failed.code == 2 and "answer.json is no JSON Schema" in failed.err
    Path("answer.json").write_text('{"type": "string"}')
    assert flywheel("config", "check").code == 0


def test_a_task_without_verifiers_says_so(flywheel: Any, make_wheel: Any) -> None:
    wheel = make_wheel()
    shown = flywheel("labels", "verify", "-t", wheel.task, "-c", wheel.path)
    assert shown.code == 0 and "has neither verifiers nor a judge" in shown.out
