"""What an author's word is worth, from agreement with reviewers and verifiers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from flywheel.config_labels import Source
from flywheel.labels.authors import AUDITED, JUDGED_BY_BOTH, Said
from flywheel.labels.authors import reliability as reliability_of
from flywheel.labels.evidence import Evidence

NOW = datetime(2025, 3, 1, tzinfo=UTC)


def said(source: Source, good: bool, text: str = "", *, by: str = "a") -> Evidence:
    given = source if source in ("reviewer", "verifier", "judge") else "user"
    return Evidence(source, good, text, "label" if text else "thumb", (given, by), NOW)


def reliability(evidence: list[list[Evidence]]) -> dict[tuple[str, str], float]:
    return reliability_of([Said(said) for said in evidence], {})


def audited(wrong: int, right: int) -> list[Said]:
    """Audited answers that a reviewer has judged."""
    return [
        *[Said([said("reviewer", False, by="r")], audit=True)] * wrong,
        *[Said([said("reviewer", True, by="r")], audit=True)] * right,
    ]


def worth(agreed: int, opposed: int, source: Source = "thumb") -> float:
    pairs = [[said("reviewer", True, by="r"), said(source, True)]] * agreed
    pairs += [[said("reviewer", True, by="r"), said(source, False)]] * opposed
    author = "judge" if source == "judge" else "user"
    return reliability(pairs)[author, "a"]


def test_who_was_never_compared_counts_in_full() -> None:
    assert reliability([[said("thumb", True)], [said("reviewer", True)], []]) == {}


@pytest.mark.parametrize(
    ("agreed", "opposed", "expected"),
    [(20, 0, 1.0), (8, 2, 1.0), (0, 1, 1.0), (0, 2, 0.5), (0, 3, 0.2), (0, 90, 0.2), (5, 5, 0.5)],
)
def test_a_user_is_worth_its_smoothed_agreement_and_never_more_than_others(
    agreed: int, opposed: int, expected: float
) -> None:
    assert worth(agreed, opposed) == expected


def test_a_correction_agrees_when_it_names_the_same_answer() -> None:
    truth = said("reviewer", False, "sales", by="r")
    assert reliability([[truth, said("correction", False, "sales")]] * 3)["user", "a"] == 1.0
    assert reliability([[truth, said("correction", False, "spam")]] * 2)["user", "a"] == 0.5
    assert reliability([[said("reviewer", False, by="r"), said("correction", False, "spam")]] * 3)["user", "a"] == 1.0


def test_a_verifier_is_believed_before_a_reviewer_and_reviewers_who_disagree_tell_nothing() -> None:
    both = [said("verifier", False, by="v"), said("reviewer", True, by="r"), said("thumb", True)]
    assert reliability([both] * 2)["user", "a"] == 0.5
    split = [said("reviewer", True, by="r"), said("reviewer", False, by="s"), said("thumb", True)]
    assert reliability([split]) == {}


def test_anonymous_users_are_nobody_in_particular() -> None:
    assert reliability([[said("reviewer", True), said("thumb", False, by="")]]) == {}


def test_a_judge_weighs_what_its_agreement_with_people_shows() -> None:
    assert worth(JUDGED_BY_BOTH - 1, 0, "judge") == 1.0
    assert worth(40, 0, "judge") == 1.5
    assert worth(15, 15, "judge") == 0.0
    assert worth(5, 30, "judge") == 0.0
    assert worth(21, 9, "judge") == 0.75


def denying(count: int, user: str = "a", source: Source = "correction") -> list[Said]:
    """Answers that the user who had asked calls wrong."""
    return [Said([said(source, False, by=user)], user_key=user) for _ in range(count)]


def test_who_calls_more_answers_wrong_than_the_model_gets_wrong_is_not_believed() -> None:
    sample = audited(wrong=9, right=21)
    assert reliability_of([*sample, *denying(9)], {"a": 10}) == {("user", "a"): 0.2}
    assert reliability_of([*sample, *denying(9, source="thumb")], {"a": 10}) == {("user", "a"): 0.2}


def test_who_speaks_about_the_wrong_ones_only_is_believed() -> None:
    sample = audited(wrong=9, right=21)
    assert reliability_of([*sample, *denying(9)], {"a": 30}) == {}
    assert reliability_of([*sample, *denying(2)], {"a": 2}) == {}
    assert reliability_of([*audited(wrong=28, right=2), *denying(9)], {"a": 10}) == {}


def test_nobody_is_tested_before_the_audit_sample_tells_how_often_the_model_is_wrong() -> None:
    sample = audited(wrong=3, right=AUDITED - 4)
    assert reliability_of([*sample, *denying(9)], {"a": 10}) == {}


def test_who_speaks_about_what_others_asked_is_not_tested() -> None:
    others = [Said([said("correction", False, by="agent")], user_key=f"u{number}") for number in range(9)]
    assert reliability_of([*audited(9, 21), *others], {f"u{number}": 1 for number in range(9)}) == {}
