"""The labelling rules: from feedback on one interaction to one label."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.config import LabelPolicy
from flywheel.labels.policy import CONFLICT, Target, make_label, policy_digest

START = datetime(2025, 3, 1, tzinfo=UTC)
NOW = START + timedelta(days=2)
POLICY = LabelPolicy()


def target(answer: str = "billing", **fields: Any) -> Target:
    return Target(
        **{
            "interaction_id": "c1",
            "task": "t",
            "ts": START,
            "trusted_time": True,
            "answer": answer,
            "audit": False,
            **fields,
        }
    )


def row(
    kind: str,
    value: Any = None,
    text: str = "",
    *,
    source: str = "user",
    author: str = "a",
    at: float = 1,
    **fields: Any,
):
    return {
        "feedback_id": f"{source}-{author}-{kind}-{at}",
        "kind": kind,
        "value": json.dumps(value),
        "text": text,
        "source": source,
        "author_key": author,
        "ts": START + timedelta(minutes=at),
        "supersedes": "",
        **fields,
    }


def label(*rows: dict[str, Any], policy: LabelPolicy = POLICY, now: datetime = NOW, **fields: Any) -> dict[str, Any]:
    found = make_label(target(**fields), rows, policy, now)
    assert found is not None
    return found


UP, DOWN = row("thumb", True), row("thumb", False)
CORRECTION = row("correction", text="sales")


def test_a_correction_is_the_target_and_the_answer_is_rejected() -> None:
    found = label(CORRECTION)
    assert (found["use"], found["chosen"], found["rejected"]) == ("sft", "sales", "billing")
    assert (found["label_source"], found["self_generated"], found["weight"]) == ("correction", False, 1.0)
    assert found["y"] < 0.1 and found["reasons"] == ["corrected by the user"]


@pytest.mark.parametrize("thumb", [UP, DOWN])
def test_a_correction_beats_a_thumb(thumb: dict[str, Any]) -> None:
    found = label(thumb, CORRECTION)
    assert (found["use"], found["chosen"], found["label_source"]) == ("sft", "sales", "correction")


def test_a_thumb_up_makes_the_models_own_answer_a_target() -> None:
    found = label(UP)
    assert (found["use"], found["chosen"], found["self_generated"]) == ("sft", "billing", True)
    assert found["weight"] < 1 and found["reasons"] == ["thumb up"]


def test_a_thumb_down_alone_makes_no_target_and_says_why() -> None:
    found = label(DOWN)
    assert (found["use"], found["chosen"], found["weight"]) == ("none", "", 0.0)
    assert found["y"] < 0.5
    assert found["reasons"] == ["thumb down", "nobody has said what would have been right"]


@pytest.mark.parametrize(("rating", "use"), [(5, "sft"), (5.0, "sft"), (1, "none")])
def test_a_rating_counts_as_a_thumb_at_the_ends(rating: float, use: str) -> None:
    assert label(row("rating", rating))["use"] == use


@pytest.mark.parametrize("rating", [2, 3, 4, 0, 10, 4.5])
def test_a_rating_between_the_ends_or_off_the_scale_says_nothing(rating: float) -> None:
    assert make_label(target(), [row("rating", rating)], POLICY, NOW) is None


@pytest.mark.parametrize(("scale", "best", "worst"), [([1, 10], 10, 1), ([0, 1], 1.0, 0), ([5, 1], 1, 5)])
def test_a_rating_counts_at_the_ends_of_its_own_scale(scale: list[float], best: float, worst: float) -> None:
    assert label(row("rating", {"value": best, "scale": scale}))["use"] == "sft"
    assert label(row("rating", {"value": worst, "scale": scale}))["y"] < 0.5
    assert make_label(target(), [row("rating", {"value": 3, "scale": scale})], POLICY, NOW) is None


def test_a_number_on_an_unknown_scale_says_nothing_and_silences_nobody() -> None:
    unknown = row("rating", {"value": 1, "name": "relevance"}, at=2)
    assert make_label(target(), [unknown], POLICY, NOW) is None
    assert label(row("thumb", True, at=1), unknown)["use"] == "sft"


@pytest.mark.parametrize("kind", ["comment", "preference"])
def test_a_comment_never_labels(kind: str) -> None:
    assert make_label(target(), [row(kind, text="sales")], POLICY, NOW) is None


def test_a_correction_equal_to_the_answer_confirms_it() -> None:
    found = label(row("correction", text=" billing "))
    assert (found["use"], found["chosen"], found["self_generated"]) == ("sft", "billing", False)
    assert found["y"] > 0.9 and found["reasons"] == ["the user agrees with the answer"]


@pytest.mark.parametrize("value", [7, True, "7"])
def test_a_label_may_come_as_a_value(value: Any) -> None:
    assert label(row("label", value, source="reviewer"))["chosen"] == (value if value == "7" else json.dumps(value))


def test_the_stronger_source_decides() -> None:
    rows = [CORRECTION, row("label", text="refunds", source="reviewer")]
    found = label(*rows)
    assert (found["chosen"], found["label_source"]) == ("refunds", "reviewer")
    found = label(*rows, row("outcome", True, source="verifier"))
    assert (found["chosen"], found["label_source"], found["self_generated"]) == ("billing", "verifier", False)
    assert "overrules a reviewer" in found["reasons"] and "overrules the user" in found["reasons"]


def test_a_plain_no_takes_the_right_answer_from_weaker_evidence() -> None:
    found = label(row("thumb", False, source="reviewer"), CORRECTION)
    assert (found["use"], found["chosen"], found["label_source"]) == ("sft", "sales", "correction")
    assert found["reasons"] == ["a reviewer calls the answer wrong", "corrected by the user"]


def test_a_plain_no_is_not_overruled_by_a_thumb_up() -> None:
    assert label(row("thumb", False, source="reviewer"), UP)["use"] == "none"


def test_a_good_outcome_makes_the_answer_a_target_nobody_checked() -> None:
    found = label(row("outcome", True))
    assert (found["use"], found["label_source"], found["self_generated"]) == ("sft", "outcome", True)


def test_an_outcome_may_bring_the_right_answer() -> None:
    assert label(row("outcome", False, text="sales"))["chosen"] == "sales"


@pytest.mark.parametrize(
    "rows",
    [
        [row("label", text=text, source="reviewer", author=text) for text in ("sales", "refunds")],
        [row("label", text="sales", source="reviewer"), row("thumb", True, source="reviewer", author="b")],
        [CORRECTION, row("correction", text="refunds", author="b")],
        [CORRECTION, row("outcome", True)],
        [UP, row("thumb", False, author="b")],
    ],
)
def test_equally_strong_evidence_that_disagrees_trains_nothing(rows: list[dict[str, Any]]) -> None:
    found = label(*rows, UP, audit=True)
    assert (found["use"], found["y"], found["reasons"][0]) == ("none", 0.5, CONFLICT)


def test_two_reviewers_who_agree_are_no_conflict() -> None:
    rows = [row("label", text="sales", source="reviewer", author=author) for author in "ab"]
    assert label(*rows)["chosen"] == "sales"


def test_the_latest_word_of_one_author_counts() -> None:
    rows = [row("label", text="sales", source="reviewer", at=1), row("label", text="refunds", source="reviewer", at=2)]
    assert label(*rows)["chosen"] == label(*reversed(rows))["chosen"] == "refunds"
    assert label(row("thumb", True, at=1), row("thumb", False, at=2))["use"] == "none"
    assert label(row("thumb", False, at=1), row("rating", 5, at=2))["use"] == "sft"


def test_superseded_feedback_does_not_count() -> None:
    old = row("correction", text="sales")
    taken_back = row("comment", text="my mistake", supersedes=old["feedback_id"], at=2)
    assert make_label(target(), [old, taken_back], POLICY, NOW) is None


def test_only_its_author_or_a_higher_authority_can_supersede_feedback() -> None:
    review = row("label", text="sales", source="reviewer")
    attack = row("correction", text="spam", author="mallory", supersedes=review["feedback_id"], at=2)
    assert label(review, attack)["chosen"] == "sales"
    other_user = row("comment", author="mallory", supersedes=CORRECTION["feedback_id"], at=2)
    assert label(CORRECTION, other_user)["chosen"] == "sales"
    reviewer = row("comment", source="reviewer", supersedes=CORRECTION["feedback_id"], at=2)
    assert make_label(target(), [CORRECTION, reviewer], POLICY, NOW) is None


def test_feedback_of_the_future_does_not_count_yet() -> None:
    assert make_label(target(), [CORRECTION], POLICY, START) is None


def test_an_audited_interaction_with_a_trusted_label_becomes_an_evaluation_item() -> None:
    found = label(CORRECTION, audit=True)
    assert (found["use"], found["chosen"]) == ("eval", "sales")


@pytest.mark.parametrize(
    ("rows", "policy"),
    [
        ([UP], POLICY),
        ([row("label", text="sales", source="judge")], POLICY),
        ([CORRECTION], LabelPolicy(gate_labels=("reviewer",))),
        ([DOWN], POLICY),
    ],
)
def test_an_audited_interaction_with_another_label_is_not_used_at_all(rows: Any, policy: LabelPolicy) -> None:
    found = label(*rows, policy=policy, audit=True)
    assert found["use"] == "none" and len(found["reasons"]) == 2


def test_a_judge_and_implicit_signs_are_the_weakest() -> None:
    judged = label(row("label", text="sales", source="judge"))
    assert (judged["use"], judged["chosen"]) == ("sft", "sales") and judged["weight"] < label(UP)["weight"]
    assert label(row("label", text="sales", source="judge"), UP)["chosen"] == "billing"
    assert label(row("accept"))["use"] == label(row("regenerate"))["use"] == "none"


@pytest.mark.parametrize("rows", [[UP], [row("outcome", True, source="verifier")]])
def test_an_answer_without_text_cannot_be_learned(rows: Any) -> None:
    found = label(*rows, answer="")
    assert (found["use"], found["reasons"][-1]) == ("none", "the answer has no text to learn")


def test_a_label_closes_after_the_window_from_the_interaction() -> None:
    assert label(CORRECTION)["matured_at"] == START + timedelta(hours=24)
    at_once = LabelPolicy(maturity_hours=0)
    assert label(CORRECTION, policy=at_once)["matured_at"] == START


def test_an_untrusted_time_counts_from_the_first_feedback() -> None:
    found = label(row("thumb", True, at=5), row("thumb", True, author="b", at=9), trusted_time=False)
    assert found["matured_at"] == START + timedelta(minutes=5, hours=24)


def test_the_policy_is_part_of_the_label() -> None:
    other = LabelPolicy(gate_labels=("reviewer",))
    assert policy_digest(POLICY) != policy_digest(other)
    assert label(CORRECTION)["digest"] != label(CORRECTION, policy=other)["digest"]


kinds = st.sampled_from(
    ["thumb", "rating", "label", "correction", "comment", "outcome", "regenerate", "accept", "preference"]
)
feedback_rows = st.builds(
    lambda kind, value, text, source, author, at, number, supersedes: (
        row(kind, value, text, source=source, author=author, at=at)
        | {"feedback_id": f"fb-{number}", "supersedes": supersedes}
    ),
    kinds,
    st.none()
    | st.booleans()
    | st.integers(0, 6)
    | st.text(max_size=3)
    | st.dictionaries(st.text(), st.text(), max_size=1),
    st.sampled_from(["", "billing", "sales", "refunds"]),
    st.sampled_from(["user", "reviewer", "judge", "verifier", "implicit"]),
    st.sampled_from(["", "a", "b"]),
    st.integers(0, 5),
    st.integers(0, 10**6),
    st.sampled_from(["", "fb-1", "fb-2"]),
)


@given(st.lists(feedback_rows, max_size=8, unique_by=lambda item: item["feedback_id"]), st.booleans(), st.randoms())
def test_any_feedback_in_any_order_gives_one_well_formed_label(rows: Any, audit: bool, chance: Any) -> None:
    found = make_label(target(audit=audit), rows, POLICY, NOW)
    chance.shuffle(rows)
    assert make_label(target(audit=audit), rows, POLICY, NOW) == found
    if found is None:
        return
    assert found["use"] in (("eval", "none") if audit else ("sft", "none"))
    assert 0 <= found["y"] <= 1 and found["reasons"]
    assert (found["weight"] > 0) == (found["use"] != "none")
    if found["use"] != "none":
        assert found["chosen"] and found["chosen"] != found["rejected"]
        if found["self_generated"]:
            assert found["chosen"] == "billing"
