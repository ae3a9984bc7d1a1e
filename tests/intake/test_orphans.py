"""Rule 2: feedback whose interaction has not arrived waits, and joins when it does."""

from __future__ import annotations

from typing import Any

import pytest

from flywheel.intake import IntakeReport, run_intake
from flywheel.store.compaction import GRACE_SECONDS, sweep
from flywheel.store.segments import read_rows


def intake(deployment: Any) -> IntakeReport:
    return run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)


def rows(deployment: Any, table: str) -> list[dict[str, Any]]:
    return read_rows(deployment.home, deployment.registry, table, deployment.task, "feedback_id")


def targets(deployment: Any) -> list[tuple[str, str]]:
    return [(row["target_kind"], row["target_id"]) for row in rows(deployment, "feedback")]


def test_feedback_before_its_interaction_waits_and_joins_in_a_later_run(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.feedback(1, text="sales"), traffic.feedback(2, text="sales"))
    report = intake(deployment)
    assert (report.sources[0].kept, report.joined, report.waiting) == (2, 0, 2)
    assert targets(deployment) == []
    traffic.write(traffic.call(1))
    report = intake(deployment)
    assert (report.joined, report.waiting) == (1, 1)
    assert targets(deployment) == [("interaction", traffic.call_id(1))]
    assert [row["target_id"] for row in rows(deployment, "orphans")] == [traffic.call_id(2)]


def test_feedback_and_interaction_in_one_chunk_join_in_any_order(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.feedback(1, text="a"), traffic.call(1), traffic.call(2), traffic.feedback(2, text="b"))
    report = intake(deployment)
    assert (report.joined, report.waiting) == (1, 0)
    assert len(targets(deployment)) == 2


def test_waiting_feedback_posted_again_is_a_duplicate(deployment: Any, traffic: Any) -> None:
    record = traffic.feedback(1, text="a", source_id="ticket-1")
    traffic.write(record)
    intake(deployment)
    traffic.write(record, record | {"id": "fb-other"}, traffic.call(1), record)
    report = intake(deployment)
    assert (report.sources[0].duplicate, report.joined, report.waiting) == (3, 1, 0)
    assert len(rows(deployment, "feedback")) == 1


def test_one_source_id_of_two_sources_is_two_facts(deployment: Any, traffic: Any) -> None:
    traffic.write(
        traffic.call(1),
        traffic.feedback(1, name="a", text="a", source_id="7"),
        traffic.feedback(1, name="b", text="b", source_id="7", source="reviewer"),
    )
    assert intake(deployment).sources[0].kept == 3


def test_feedback_on_a_conversation_stays_on_it(deployment: Any, traffic: Any) -> None:
    talk = {"kind": "conversation", "id": "talk"}
    traffic.write(traffic.feedback(1, "outcome", value=True, target=talk))
    assert intake(deployment).waiting == 1
    traffic.write(traffic.call(1, conversation_id="talk"))
    assert intake(deployment).joined == 1
    assert targets(deployment) == [("conversation", "talk")]


@pytest.mark.parametrize("stored", ["42", 42])
def test_feedback_by_metadata_finds_the_newest_interaction_with_it(deployment: Any, traffic: Any, stored: Any) -> None:
    ticket = {"kind": "metadata", "key": "ticket", "value": "42"}
    traffic.write(
        traffic.call(3, metadata={"ticket": stored}),
        traffic.call(2, metadata={"ticket": stored}),
        traffic.call(4, metadata={"ticket": "421", "note": "42"}),
    )
    intake(deployment)
    traffic.write(traffic.feedback(9, text="sales", target=ticket))
    intake(deployment)
    assert targets(deployment) == [("interaction", traffic.call_id(3))]


def test_feedback_by_metadata_waits_for_its_interaction(deployment: Any, traffic: Any) -> None:
    ticket = {"kind": "metadata", "key": 'quo"te', "value": "ü%_"}
    traffic.write(traffic.feedback(9, text="sales", target=ticket))
    assert intake(deployment).waiting == 1
    traffic.write(traffic.call(1, metadata={'quo"te': "ü%_"}))
    assert intake(deployment).joined == 1
    assert targets(deployment) == [("interaction", traffic.call_id(1))]


def test_feedback_without_a_task_joins_where_its_target_is(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.feedback(1, text="a", task=""), traffic.call(1))
    assert intake(deployment).joined == 1


def test_feedback_on_a_further_choice_is_about_that_choice(deployment: Any, traffic: Any) -> None:
    second = f"{traffic.call_id(1)}#1"
    choices = [{"index": k, "message": {"role": "assistant", "content": str(k)}} for k in range(2)]
    target = {"kind": "interaction", "id": second}
    traffic.write(traffic.feedback(1, "thumb", value=True, target=target), traffic.call(1, choices=choices))
    intake(deployment)
    assert targets(deployment) == [("interaction", second)]


def test_files_of_rewritten_orphans_go_after_their_grace(deployment: Any, traffic: Any) -> None:
    for number in range(3):
        traffic.write(traffic.feedback(number, text="a"))
        intake(deployment)
    files = list((deployment.home.data / "orphans").rglob("*.parquet"))
    assert len(files) == 3
    assert sweep(deployment.home, deployment.registry, "orphans", deployment.task, grace_seconds=GRACE_SECONDS) == 0
    assert sweep(deployment.home, deployment.registry, "orphans", deployment.task, grace_seconds=-1) == 2
    assert len(rows(deployment, "orphans")) == 3
