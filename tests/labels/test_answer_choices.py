"""The answers to choose from: found where labels repeat, absent where they are free text."""

from __future__ import annotations

from typing import Any

import pytest

from flywheel.intake import run_intake
from flywheel.labels import answer_choices, run_labels
from flywheel.labels.choices import LONGEST_CHOICE, MOST_CHOICES

QUEUES = [f"queue {number:02}" for number in range(MOST_CHOICES)]


@pytest.fixture
def choices_of(make_deployment: Any, traffic_of: Any) -> Any:
    """``choices_of(targets)``: the choices once there is a label for each of the targets."""

    def choices(targets: list[str]) -> list[str]:
        deployment = make_deployment(task={"labels": {"maturity_hours": 0, "audit_share": 0}})
        traffic = traffic_of(deployment.home)
        traffic.write(*(traffic.call(number) for number in range(len(targets))))
        traffic.write(*(traffic.feedback(number, text=target) for number, target in enumerate(targets)))
        run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)
        run_labels(deployment.config, deployment.home, deployment.registry, deployment.task)
        return answer_choices(deployment.home, deployment.registry, deployment.task)

    return choices


def test_choices_are_the_distinct_targets_in_alphabetical_order(choices_of: Any) -> None:
    assert choices_of(["sales", "billing", "sales", "refunds", " billing "]) == ["billing", "refunds", "sales"]


def test_without_labels_there_are_none(choices_of: Any) -> None:
    assert choices_of([]) == []


def test_many_more_answers_than_keys_are_free_text(choices_of: Any) -> None:
    assert choices_of([*QUEUES, "one", "two", "three", "four", "five"]) == []


def test_a_few_slips_beside_as_many_answers_as_keys_do_not_hide_them(choices_of: Any) -> None:
    assert choices_of([*QUEUES * 2, "a slip", "another", "a third"]) == QUEUES


@pytest.mark.parametrize("free", ["x" * (LONGEST_CHOICE + 1), "two\nlines"])
def test_long_answers_and_answers_of_several_lines_are_no_choice(choices_of: Any, free: str) -> None:
    assert choices_of([*["sales"] * 9, free]) == ["sales"]


def test_a_fifth_of_long_answers_is_free_text(choices_of: Any) -> None:
    assert choices_of([*["sales"] * 4, "x" * (LONGEST_CHOICE + 1)]) == []


def test_only_the_latest_label_of_each_interaction_counts(make_deployment: Any, traffic_of: Any) -> None:
    deployment = make_deployment(task={"labels": {"maturity_hours": 0, "audit_share": 0}})
    traffic = traffic_of(deployment.home)
    traffic.write(traffic.call(0))
    for second, text in enumerate(("wrong", "right"), 1):
        traffic.write(traffic.feedback(0, text=text, name=text, ts=traffic.time(second)))
        run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)
        run_labels(deployment.config, deployment.home, deployment.registry, deployment.task)
    assert answer_choices(deployment.home, deployment.registry, deployment.task) == ["right"]
