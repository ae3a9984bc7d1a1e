"""Turns of a conversation are ordered by time, however they arrive."""

from __future__ import annotations

from typing import Any

from flywheel.intake import intake_digest, run_intake
from flywheel.store.segments import read_rows


def turns(deployment: Any) -> list[tuple[str, int, str]]:
    found = read_rows(deployment.home, deployment.registry, "interactions", deployment.task, "ts, interaction_id")
    return [(row["interaction_id"], row["turn_index"], row["parent_interaction_id"]) for row in found]


def intake(deployment: Any) -> None:
    run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)


def test_a_turn_follows_the_one_before_it_across_runs(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.call(1, conversation_id="talk"), traffic.call(2))
    intake(deployment)
    traffic.write(traffic.call(3, conversation_id="talk"))
    intake(deployment)
    one, two, three = (traffic.call_id(number) for number in (1, 2, 3))
    assert turns(deployment) == [(one, 0, ""), (two, 0, ""), (three, 1, one)]


def test_turns_arriving_in_any_order_and_run_give_the_same_tables(make_deployment, traffic_of) -> None:
    secret = b"k" * 32
    digests = set()
    for place, order in enumerate([(0, 1, 2), (2, 1, 0), (1, 2, 0)]):
        deployment = make_deployment(f"d{place}")
        (deployment.home.root / "secret.key").write_bytes(secret)
        traffic = traffic_of(deployment.home)
        for number in order:
            traffic.write(traffic.call(number, conversation_id="talk"))
            intake(deployment)
        assert [index for _, index, _ in turns(deployment)] == [0, 1, 2]
        digests.add(intake_digest(deployment.home, deployment.registry, deployment.task))
    assert len(digests) == 1


def test_a_call_that_names_another_as_its_conversation_follows_it(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.call(2, conversation_id=traffic.call_id(1)))
    intake(deployment)
    traffic.write(traffic.call(1))
    intake(deployment)
    assert turns(deployment) == [(traffic.call_id(1), 0, ""), (traffic.call_id(2), 1, traffic.call_id(1))]


def test_a_parent_that_the_record_names_stays(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.call(3, conversation_id="talk", parent_id="elsewhere"))
    intake(deployment)
    traffic.write(traffic.call(1, conversation_id="talk"))
    intake(deployment)
    assert turns(deployment)[1] == (traffic.call_id(3), 1, "elsewhere")


def test_within_one_second_the_longer_history_comes_later(deployment: Any, traffic: Any) -> None:
    long = traffic.call(1, conversation_id="talk", text="hello " * 9, ts=traffic.time(5))
    short = traffic.call(2, conversation_id="talk", text="hello", ts=traffic.time(5))
    traffic.write(long, short)
    intake(deployment)
    assert {own: index for own, index, _ in turns(deployment)} == {traffic.call_id(2): 0, traffic.call_id(1): 1}


def test_choices_of_one_call_are_one_turn(deployment: Any, traffic: Any) -> None:
    choices = [{"index": k, "message": {"role": "assistant", "content": str(k)}} for k in range(2)]
    traffic.write(*(traffic.call(n, conversation_id="talk", choices=choices) for n in range(2)))
    intake(deployment)
    assert [index for _, index, _ in turns(deployment)] == [0, 0, 1, 1]
