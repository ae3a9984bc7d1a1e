"""The label stage: versions are numbered without gaps, appear when something changed, and only then."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flywheel.intake import run_intake
from flywheel.labels import (
    LabelsReport,
    current_labels,
    labels_digest,
    last_seq,
    pending_versions,
    review_queue,
    run_labels,
)
from flywheel.store.segments import query

START = datetime(2025, 3, 1, 12, tzinfo=UTC)


def turn(deployment: Any, now: datetime | None = None) -> LabelsReport:
    run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)
    return run_labels(deployment.config, deployment.home, deployment.registry, deployment.task, now=now)


def labels(deployment: Any, **arguments: Any) -> list[dict[str, Any]]:
    return current_labels(deployment.home, deployment.registry, deployment.task, **arguments)


def all_versions(deployment: Any) -> list[dict[str, Any]]:
    sql = "SELECT * FROM rows ORDER BY seq"
    return query(deployment.home, deployment.registry, "labels", deployment.task, sql).to_pylist()


@pytest.fixture
def busy(make_deployment: Callable[..., Any]) -> Any:
    """A deployment whose labels mature at once and whose audit sample is empty."""
    return make_deployment(task={"labels": {"maturity_hours": 0, "audit_share": 0}})


def test_only_interactions_with_evidence_get_labels(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    traffic.write(
        *(traffic.call(number) for number in range(4)),
        traffic.feedback(0, text="sales"),
        traffic.feedback(1, "thumb", value=True),
        traffic.feedback(2, "comment", text="nice"),
    )
    report = turn(busy)
    assert (report.new_versions, report.total, report.last_seq, report.waiting) == (2, 2, 2, 0)
    assert (report.by_use, report.by_source) == ({"kto": 1, "sft": 1}, {"correction": 1, "thumb": 1})
    assert [(row["seq"], row["target_id"]) for row in labels(busy)] == [
        (1, traffic.call_id(0)),
        (2, traffic.call_id(1)),
    ]


def test_running_again_writes_nothing(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    traffic.write(traffic.call(0), traffic.feedback(0, text="sales"))
    first = turn(busy)
    again = turn(busy)
    assert (again.new_versions, again.total, again.last_seq) == (0, first.total, first.last_seq)
    traffic.write(traffic.call(1), traffic.feedback(0, "comment", text="more"))
    assert turn(busy).new_versions == 0
    assert len(all_versions(busy)) == 1


def test_a_run_with_nothing_new_does_not_open_a_segment(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    traffic.write(traffic.call(0), traffic.feedback(0, text="sales"))
    turn(busy)
    for path in busy.home.data.rglob("*.parquet"):
        path.unlink()
    assert turn(busy).total == 1


def test_late_feedback_makes_a_new_version_of_its_label_only(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    traffic.write(*(traffic.call(n) for n in range(3)), *(traffic.feedback(n, "thumb", value=True) for n in range(3)))
    turn(busy)
    traffic.write(traffic.feedback(1, "correction", text="sales"))
    report = turn(busy)
    assert (report.new_versions, report.last_seq, report.total) == (1, 4, 3)
    assert [row["target_id"] for row in labels(busy)] == [traffic.call_id(number) for number in (0, 2, 1)]
    assert [row["seq"] for row in labels(busy, up_to_seq=3)] == [1, 2, 3]
    assert labels(busy, up_to_seq=0) == []


def test_pending_versions_counts_exactly_from_the_registry(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    for number in range(3):
        traffic.write(traffic.call(number), traffic.feedback(number, text="sales"))
        turn(busy)
    traffic.write(traffic.feedback(0, "label", text="refunds", source="reviewer"))
    turn(busy)
    with busy.registry.read() as tx:
        assert last_seq(tx, busy.task) == 4
        assert [pending_versions(tx, busy.task, after) for after in (0, 1, 3, 4, 9)] == [4, 3, 1, 0, 0]
        assert (last_seq(tx, "other"), pending_versions(tx, "other", 0)) == (0, 0)


def test_a_label_appears_when_its_window_has_passed(make_deployment: Any, traffic_of: Any) -> None:
    deployment = make_deployment(task={"labels": {"maturity_hours": 2, "audit_share": 0}})
    traffic = traffic_of(deployment.home)
    for number in (0, 3600):
        traffic.write(traffic.call(number), traffic.feedback(number, text="sales"))
    hour = timedelta(hours=1)
    report = turn(deployment, START + hour * 1.5)
    assert (report.total, report.waiting) == (0, 2)
    report = turn(deployment, START + hour * 2)
    assert (report.total, report.waiting) == (1, 1)
    report = turn(deployment, START + hour * 2.9)
    assert (report.new_versions, report.waiting) == (0, 1)
    report = turn(deployment, START + hour * 3)
    assert (report.new_versions, report.total, report.waiting, report.last_seq) == (1, 2, 0, 2)


def test_a_clock_set_back_takes_no_label_away(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    traffic.write(traffic.call(0), traffic.feedback(0, text="sales"))
    turn(busy, START + timedelta(hours=1))
    traffic.write(traffic.call(1), traffic.feedback(1, text="sales"))
    report = turn(busy, START - timedelta(hours=1))
    assert (report.total, report.last_seq) == (2, 2)


def test_feedback_taken_back_turns_its_label_into_nothing(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    traffic.write(traffic.call(0), traffic.feedback(0, text="sales", name="1"))
    turn(busy)
    traffic.write(traffic.feedback(0, "comment", text="no", name="2", supersedes="fb-1", ts=traffic.time(5)))
    assert turn(busy).new_versions == 1
    (found,) = labels(busy)
    assert (found["use"], found["chosen"], found["reasons"]) == ("none", "", ["the feedback was taken back"])
    assert turn(busy).new_versions == 0


def test_feedback_on_a_conversation_labels_its_last_turn_at_that_time(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    talk = {"kind": "conversation", "id": "talk"}
    traffic.write(
        *(traffic.call(number, conversation_id="talk") for number in (0, 10, 20)),
        traffic.feedback(10, "outcome", value=True, target=talk),
    )
    turn(busy)
    (found,) = labels(busy)
    assert (found["target_kind"], found["target_id"]) == ("interaction", traffic.call_id(10))


def test_a_changed_policy_makes_a_new_version_of_every_label(busy: Any, traffic_of: Any, make_deployment: Any) -> None:
    traffic = traffic_of(busy.home)
    traffic.write(traffic.call(0), traffic.feedback(0, text="sales"))
    turn(busy)
    stricter = {"maturity_hours": 0, "audit_share": 0, "gate_labels": ["reviewer"]}
    changed = make_deployment(task={"labels": stricter})
    assert turn(changed).new_versions == 1
    assert len({row["policy_digest"] for row in all_versions(busy)}) == 2


def test_conflicts_are_counted(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    reviews = [
        traffic.feedback(0, "label", text=text, source="reviewer", author=text, name=text) for text in ("a", "b")
    ]
    traffic.write(traffic.call(0), *reviews)
    report = turn(busy)
    assert (report.conflicts, report.by_use) == (1, {"none": 1})


def test_labels_say_the_same_whatever_the_order_and_the_runs(make_deployment: Any, traffic_of: Any) -> None:
    digests = set()
    for place, order in enumerate([(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)]):
        deployment = make_deployment(f"d{place}", task={"labels": {"maturity_hours": 0, "audit_share": 0.5}})
        (deployment.home.root / "secret.key").write_bytes(b"k" * 32)
        traffic = traffic_of(deployment.home)
        for number in order:
            traffic.write(traffic.feedback(number, text="sales"), traffic.call(number))
            if place:
                turn(deployment)
        turn(deployment)
        digests.add(labels_digest(deployment.home, deployment.registry, deployment.task))
    assert len(digests) == 1


class Crash(BaseException):
    """Stands for the process's end."""


@pytest.mark.parametrize("survives", range(6))
def test_an_end_at_any_write_leaves_no_gap_and_no_second_version(
    busy: Any, traffic_of: Any, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    traffic = traffic_of(busy.home)
    traffic.write(*(traffic.call(n) for n in range(3)), *(traffic.feedback(n, text="sales") for n in range(3)))
    run_intake(busy.config, busy.home, busy.registry, busy.task)
    sync, left = os.fsync, survives

    def fsync(descriptor: int) -> None:
        nonlocal left
        if not left:
            raise Crash
        left -= 1
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    try:
        turn(busy)
    except Crash:
        assert all_versions(busy) == []
    monkeypatch.setattr(os, "fsync", sync)
    turn(busy)
    assert [row["seq"] for row in all_versions(busy)] == [1, 2, 3]


def test_many_small_versions_are_merged_without_changing_them(
    busy: Any, traffic_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flywheel.store.compaction.MERGE_AT", 3)
    traffic = traffic_of(busy.home)
    for number in range(5):
        traffic.write(traffic.call(number), traffic.feedback(number, text="sales"))
        turn(busy)
    with busy.registry.read() as tx:
        from flywheel.store.segments import visible

        merged = visible(tx, "labels", busy.task)
        assert pending_versions(tx, busy.task, 0) == 5
    assert len(merged) < 5
    assert [row["seq"] for row in all_versions(busy)] == [1, 2, 3, 4, 5]


def test_the_review_queue_holds_audited_answers_that_nobody_judged(make_deployment: Any, traffic_of: Any) -> None:
    deployment = make_deployment(task={"labels": {"maturity_hours": 24, "audit_share": 1}})
    traffic = traffic_of(deployment.home)
    traffic.write(
        *(traffic.call(number) for number in range(5)),
        traffic.feedback(0, "label", text="sales", source="reviewer"),
        traffic.feedback(1, "thumb", value=True),
        traffic.feedback(2, text="sales"),
        traffic.call(9, status="error", choices=[]),
    )
    turn(deployment, START)
    found = queue(deployment)
    assert [row["interaction_id"] for row in found] == [traffic.call_id(number) for number in (1, 3, 4)]
    assert found[0]["messages"] == [{"content": "message 1", "role": "user"}] and found[0]["answer"] == "billing"
    assert {row["why"] for row in found} == {"audit"}
    assert len(queue(deployment, 2)) == 2


def test_a_disagreement_waits_for_a_reviewer_and_goes_when_one_has_spoken(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    says = [traffic.feedback(0, text=text, author=text, name=text) for text in ("sales", "refunds")]
    traffic.write(traffic.call(0), traffic.call(1), *says)
    turn(busy)
    assert [(row["interaction_id"], row["why"]) for row in queue(busy)] == [(traffic.call_id(0), "disagreement")]
    traffic.write(traffic.feedback(0, "label", text="refunds", source="reviewer"))
    turn(busy)
    assert queue(busy) == []


def test_nothing_outside_the_audit_sample_is_queued_for_review(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    traffic.write(traffic.call(0))
    turn(busy)
    assert queue(busy) == []


def test_who_was_often_wrong_teaches_with_less_weight(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    for number in range(3):
        traffic.write(traffic.call(number), traffic.feedback(number, text="spam", author="mallory"))
        if number:
            traffic.write(traffic.feedback(number, "label", text="sales", source="reviewer"))
    traffic.write(traffic.call(8), traffic.feedback(8, text="sales", author="ann"))
    turn(busy)
    weights = {row["target_id"]: row["weight"] for row in labels(busy) if row["label_source"] == "correction"}
    assert weights == {traffic.call_id(0): 0.5, traffic.call_id(8): 1.0}


def queue(deployment: Any, limit: int = 10) -> list[dict[str, Any]]:
    policy = deployment.config.task(deployment.task).labels
    return review_queue(deployment.home, deployment.registry, deployment.task, limit, policy)
