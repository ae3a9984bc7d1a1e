"""What conversations show about answers, read from real traffic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flywheel.config_labels import PhrasePolicy
from flywheel.intake import run_intake
from flywheel.labels import current_labels, run_labels
from flywheel.labels.signs import begins, find_signs


@pytest.fixture
def busy(make_deployment: Callable[..., Any]) -> Any:
    """A deployment whose labels mature at once and whose audit sample is empty."""
    return make_deployment(
        task={"labels": {"maturity_hours": 0, "maturity_hours_of": {"outcome": 0}, "audit_share": 0}}
    )


def talk(traffic: Any, *turns: tuple[str, str], name: str = "talk", first: int = 0) -> list[dict[str, Any]]:
    """A conversation whose requests hold the whole history, one turn a minute."""
    history: list[dict[str, Any]] = []
    records = []
    for place, (question, answer) in enumerate(turns):
        asked = [*history, {"role": "user", "content": question}]
        request = {"messages": asked, "tools": None, "params": {}}
        records.append(traffic.call(first + 60 * place, answer, conversation_id=name, request=request))
        history = [*asked, {"role": "assistant", "content": answer}]
    return records


def signs(deployment: Any, *spoken_about: str) -> dict[str, list[tuple[str, str]]]:
    run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)
    found = find_signs(deployment.home, deployment.registry, deployment.task, spoken_about, PhrasePolicy())
    return {about: [(row["kind"], row["value"]) for row in rows] for about, rows in found.rows.items()}


def labels(deployment: Any) -> dict[str, dict[str, Any]]:
    run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)
    run_labels(deployment.config, deployment.home, deployment.registry, deployment.task)
    found = current_labels(deployment.home, deployment.registry, deployment.task)
    return {row["target_id"]: row for row in found}


@pytest.mark.parametrize(
    ("following", "sign"),
    [
        ("Thanks! And how long does it take?", [("says", "true")]),
        ("That’s  wrong, I meant the other one", [("says", "false")]),
        ("How long does it take?", []),
        ("Can you help me? Thank you", []),
    ],
)
def test_the_next_message_may_thank_or_complain(busy: Any, traffic_of: Any, following: str, sign: Any) -> None:
    traffic = traffic_of(busy.home)
    traffic.write(*talk(traffic, ("where is it", "on its way"), (following, "two days")))
    assert signs(busy, traffic.call_id(0)).get(traffic.call_id(0), []) == sign


def test_nothing_that_followed_is_unknown(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    traffic.write(*talk(traffic, ("where is it", "on its way")))
    assert signs(busy, traffic.call_id(0)) == {}


def test_a_prompt_asked_again_regenerates_its_answer_and_going_on_accepts_the_other(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    (first,) = talk(traffic, ("where is it", "no idea"))
    rest = talk(traffic, ("where is it", "on its way"), ("and the bill", "paid"), first=60)
    traffic.write(first, *rest)
    assert signs(busy) == {traffic.call_id(0): [("regenerate", "null")], traffic.call_id(60): [("accept", "null")]}
    found = labels(busy)
    assert list(found) == [traffic.call_id(60)]
    pair = found[traffic.call_id(60)]
    assert (pair["use"], pair["chosen"], pair["rejected"]) == ("pair", "on its way", "no idea")


@pytest.mark.parametrize("again", ["no idea", None])
def test_a_retry_with_the_same_answer_or_in_another_conversation_is_no_regeneration(
    busy: Any, traffic_of: Any, again: str | None
) -> None:
    traffic = traffic_of(busy.home)
    (first,) = talk(traffic, ("where is it", "no idea"))
    (second,) = talk(traffic, ("where is it", again or "here"), first=60, name="talk" if again else "other")
    traffic.write(first, second)
    assert signs(busy) == {}


def test_a_thumb_and_thanks_make_a_target_and_a_complaint_unmakes_it(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    up = traffic.feedback(0, "thumb", value=True)
    traffic.write(*talk(traffic, ("where is it", "on its way"), ("thanks, and when", "today")), up)
    assert labels(busy)[traffic.call_id(0)]["use"] == "sft"
    other = traffic.feedback(1000, "thumb", value=True)
    traffic.write(*talk(traffic, ("where is it", "gone"), ("that is wrong", "sorry"), name="b", first=1000), other)
    assert labels(busy)[traffic.call_id(1000)]["use"] == "none"


@pytest.mark.parametrize(("rule", "labelled"), [("last", [60]), ("every", [0, 60])])
def test_the_outcome_of_a_conversation_speaks_about_the_turns_that_the_policy_names(
    make_deployment: Any, traffic_of: Any, rule: str, labelled: list[int]
) -> None:
    policy = {"maturity_hours": 0, "maturity_hours_of": {"outcome": 0}, "audit_share": 0, "conversation_outcome": rule}
    deployment = make_deployment(task={"labels": policy})
    traffic = traffic_of(deployment.home)
    won = traffic.feedback(70, "outcome", value=True, target={"kind": "conversation", "id": "talk"})
    turns = talk(traffic, ("where is it", "on its way"), ("and when", "today"), ("bye", "bye"))
    traffic.write(*turns, won)
    found = labels(deployment)
    assert sorted(found) == [traffic.call_id(number) for number in labelled]
    assert {row["use"] for row in found.values()} == {"sft"}


def test_a_refusal_is_safe_from_thumbs_down(busy: Any, traffic_of: Any) -> None:
    traffic = traffic_of(busy.home)
    answers = ("I can’t help with that.", "I cannot assist with weapons", "billing")
    for number, answer in enumerate(answers):
        traffic.write(traffic.call(number, answer), traffic.feedback(number, "thumb", value=False))
    found = labels(busy)
    assert [found[traffic.call_id(number)]["use"] for number in range(3)] == ["none", "none", "kto"]


def test_a_phrase_must_begin_the_text() -> None:
    assert begins("  THANKS a lot", ["thanks"]) and not begins("no thanks", ["thanks"])
