"""The labelling rules: from feedback on one interaction to one label."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.config_labels import LabelPolicy
from flywheel.labels.policy import UNSURE, make_label, policy_digest
from flywheel.labels.verdict import CONFLICT, DOUBTED, REFUSAL, Target

START = datetime(2025, 3, 1, tzinfo=UTC)
NOW = START + timedelta(days=8)
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


def label(
    *rows: dict[str, Any],
    policy: LabelPolicy = POLICY,
    now: datetime = NOW,
    worth: dict[tuple[str, str], float] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    found = make_label(target(**fields), rows, policy, now, worth)
    assert found is not None
    return found


UP, DOWN = row("thumb", True), row("thumb", False)
CORRECTION = row("correction", text="sales")


def test_a_correction_is_the_target() -> None:
    found = label(CORRECTION)
    assert (found["use"], found["chosen"], found["label_source"]) == ("sft", "sales", "correction")
    assert (found["self_generated"], found["weight"]) == (False, 1.0)
    assert found["y"] < 0.1 and found["reasons"] == ["corrected by the user"]


@pytest.mark.parametrize(
    ("answer", "text", "good", "rejected"),
    [
        ("We refund within 30 days of the purchase, without asking.", "We refund within 14 days.", False, True),
        ("We refund within 30 days of the purchase, without asking.", "No refunds, ever!", False, False),
        (
            "We refund within 30 days of the purchase, without asking.",
            "We refund within 30 days of the purchase, without asking",
            True,
            False,
        ),
    ],
)
def test_an_edit_makes_a_pair_a_rewrite_does_not_and_a_trifle_confirms(
    answer: str, text: str, good: bool, rejected: bool
) -> None:
    found = label(row("correction", text=text), answer=answer)
    assert found["use"] == "sft" and (found["y"] > 0.5) == good
    assert found["chosen"] == (answer if good else text)
    assert found["rejected"] == (answer if rejected else "")


@pytest.mark.parametrize("thumb", [UP, DOWN])
def test_a_correction_beats_a_thumb(thumb: dict[str, Any]) -> None:
    found = label(thumb, CORRECTION)
    assert (found["use"], found["chosen"], found["label_source"]) == ("sft", "sales", "correction")


def test_a_thumb_alone_says_good_or_bad_and_makes_no_target() -> None:
    found = label(UP)
    assert (found["use"], found["chosen"], found["self_generated"]) == ("kto", "billing", True)
    assert 0.5 < found["y"] < 0.8 and 0 < found["weight"] < 1
    assert found["reasons"] == ["thumb up", "known to be good or bad only"]
    found = label(DOWN)
    assert (found["use"], found["chosen"]) == ("kto", "") and found["y"] < 0.5
    assert found["reasons"] == ["thumb down", "known to be good or bad only"]


@pytest.mark.parametrize(
    "second", [row("accept"), row("thumb", True, author="b"), row("says", True, source="implicit")]
)
def test_a_thumb_up_and_a_second_sign_make_the_models_own_answer_a_target(second: dict[str, Any]) -> None:
    found = label(UP, second)
    assert (found["use"], found["chosen"], found["self_generated"]) == ("sft", "billing", True)
    assert found["y"] >= 0.8 and found["weight"] < 1


def test_what_evidence_is_worth_is_the_policys() -> None:
    bold = LabelPolicy.model_validate({"weights": {"thumb": [1.5, -1.5]}})
    assert bold.weights.reviewer == (3.0, -3.0)
    assert label(UP, policy=bold)["use"] == "sft"
    assert label(UP, policy=LabelPolicy(base_rate=0.9))["use"] == "sft"
    assert label(CORRECTION, policy=LabelPolicy(base_rate=0.99))["use"] == "sft"


def test_a_crowd_of_thumbs_is_no_verifier() -> None:
    crowd = [row("thumb", True, author=f"fan {number}") for number in range(50)]
    assert label(*crowd)["y"] == label(*crowd[:2])["y"] < 0.9
    found = label(*crowd, row("outcome", False, source="verifier"))
    assert (found["use"], found["label_source"]) == ("kto", "verifier") and found["y"] < 0.05


@pytest.mark.parametrize("rating", [5, 5.0, 1])
def test_a_rating_counts_as_a_thumb_at_the_ends(rating: float) -> None:
    found = label(row("rating", rating))
    assert found["use"] == "kto" and (found["y"] > 0.5) == (rating == 5)


@pytest.mark.parametrize("rating", [2, 3, 4, 0, 10, 4.5])
def test_a_rating_between_the_ends_or_off_the_scale_says_nothing(rating: float) -> None:
    assert make_label(target(), [row("rating", rating)], POLICY, NOW) is None


@pytest.mark.parametrize(("scale", "best", "worst"), [([1, 10], 10, 1), ([0, 1], 1.0, 0), ([5, 1], 1, 5)])
def test_a_rating_counts_at_the_ends_of_its_own_scale(scale: list[float], best: float, worst: float) -> None:
    assert label(row("rating", {"value": best, "scale": scale}))["y"] > 0.5
    assert label(row("rating", {"value": worst, "scale": scale}))["y"] < 0.5
    assert make_label(target(), [row("rating", {"value": 3, "scale": scale})], POLICY, NOW) is None


def test_a_number_on_an_unknown_scale_says_nothing_and_silences_nobody() -> None:
    unknown = row("rating", {"value": 1, "name": "relevance"}, at=2)
    assert make_label(target(), [unknown], POLICY, NOW) is None
    assert label(row("thumb", True, at=1), unknown)["y"] > 0.5


def test_a_comment_never_labels() -> None:
    assert make_label(target(), [row("comment", text="sales")], POLICY, NOW) is None


def test_a_correction_equal_to_the_answer_confirms_it() -> None:
    found = label(row("correction", text=" billing "))
    assert (found["use"], found["chosen"], found["self_generated"]) == ("sft", "billing", False)
    assert found["y"] > 0.9 and found["reasons"] == ["the user agrees with the answer"]


@pytest.mark.parametrize("value", [7, True, "7"])
def test_a_label_may_come_as_a_value(value: Any) -> None:
    assert label(row("label", value, source="reviewer"))["chosen"] == (value if value == "7" else json.dumps(value))


def test_the_stronger_source_decides() -> None:
    found = label(CORRECTION, row("label", text="refunds", source="reviewer"))
    assert (found["chosen"], found["label_source"]) == ("refunds", "reviewer")
    found = label(CORRECTION, row("outcome", True, source="verifier"))
    assert (found["chosen"], found["label_source"], found["self_generated"]) == ("billing", "verifier", False)
    assert "overrules the user" in found["reasons"]


def test_a_reviewer_who_spoke_after_the_verifier_settles_what_they_disagree_about() -> None:
    passed = row("outcome", True, source="verifier", at=5)
    found = label(passed, row("label", text="refunds", source="reviewer", at=9))
    assert (found["chosen"], found["label_source"]) == ("refunds", "reviewer")
    found = label(passed, row("label", text="refunds", source="reviewer", at=1))
    assert (found["use"], found["reasons"][0]) == ("none", CONFLICT)


def test_a_plain_no_takes_the_right_answer_from_weaker_evidence() -> None:
    found = label(row("thumb", False, source="reviewer"), CORRECTION)
    assert (found["use"], found["chosen"], found["label_source"]) == ("sft", "sales", "correction")
    assert found["reasons"] == ["a reviewer calls the answer wrong", "corrected by the user"]


def test_a_plain_no_is_not_overruled_by_a_thumb_up() -> None:
    found = label(row("thumb", False, source="reviewer"), UP)
    assert (found["use"], found["chosen"]) == ("kto", "") and found["y"] < 0.1


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
        [row("outcome", True), row("outcome", False, author="b")],
    ],
)
def test_equally_strong_evidence_that_disagrees_trains_nothing(rows: list[dict[str, Any]]) -> None:
    found = label(*rows, UP, audit=True)
    assert (found["use"], found["y"], found["reasons"][0]) == ("none", 0.5, CONFLICT)
    assert found["reasons"][-1] == "waits for a reviewer"


def test_thumbs_that_disagree_are_unknown_and_no_conflict() -> None:
    found = label(UP, row("thumb", False, author="b"))
    assert (found["use"], found["reasons"]) == ("none", ["thumb down", "thumb up", UNSURE])


def test_two_reviewers_who_agree_are_no_conflict() -> None:
    rows = [row("label", text="sales", source="reviewer", author=author) for author in "ab"]
    assert label(*rows)["chosen"] == "sales"


def test_the_latest_word_of_one_author_counts() -> None:
    rows = [row("label", text="sales", source="reviewer", at=1), row("label", text="refunds", source="reviewer", at=2)]
    assert label(*rows)["chosen"] == label(*reversed(rows))["chosen"] == "refunds"
    assert label(row("thumb", True, at=1), row("thumb", False, at=2))["y"] < 0.5
    assert label(row("thumb", False, at=1), row("rating", 5, at=2))["y"] > 0.5


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
    assert found["use"] == "none" and any("audit sample" in reason for reason in found["reasons"])


def test_a_judge_alone_is_not_enough_unless_it_proved_itself() -> None:
    judged = row("label", text="sales", source="judge", author="j")
    assert (label(judged)["use"], label(judged)["reasons"][-1]) == ("none", UNSURE)
    found = label(judged, worth={("judge", "j"): 1.5})
    assert (found["use"], found["chosen"]) == ("sft", "sales") and found["weight"] < 1
    assert label(judged, UP)["use"] == "none"


def test_what_users_did_alone_labels_nothing() -> None:
    for sign in (row("accept"), row("regenerate"), row("says", False, source="implicit")):
        assert make_label(target(), [sign], POLICY, NOW) is None


def test_an_answer_without_text_is_learned_only_when_it_calls_a_tool() -> None:
    passed = row("outcome", True, source="verifier")
    found = label(passed, answer="")
    assert (found["use"], found["reasons"][-1]) == ("none", "the answer has no text to learn")
    found = label(passed, answer="", calls_tools=True)
    assert (found["use"], found["self_generated"]) == ("sft", False)
    assert label(UP, answer="", calls_tools=True)["use"] == "kto"
    assert label(UP, answer="")["use"] == "none"


def test_anger_at_a_refusal_does_not_count_but_a_correction_does() -> None:
    found = label(DOWN, refused=True)
    assert (found["use"], found["y"]) == ("none", 0.5) and REFUSAL in found["reasons"]
    assert label(DOWN, CORRECTION, refused=True)["chosen"] == "sales"
    assert label(row("outcome", False, source="verifier"), DOWN, refused=True)["y"] < 0.05


def test_an_answer_that_came_instead_of_another_is_the_better_of_a_pair_when_it_was_accepted() -> None:
    found = label(row("accept", source="implicit"), before="sales")
    assert (found["use"], found["chosen"], found["rejected"]) == ("pair", "billing", "sales")
    assert found["weight"] == 0.5
    found = label(UP, row("accept", source="implicit"), before="sales")
    assert (found["use"], found["chosen"], found["rejected"]) == ("sft", "billing", "sales")
    assert label(DOWN, before="sales")["rejected"] == ""


@pytest.mark.parametrize(
    ("value", "text", "pair"),
    [
        ({"chosen": "billing", "rejected": "sales", "shown_first": "rejected"}, "", ("billing", "sales", "rejected")),
        ({"chosen": "billing", "rejected": "sales"}, "", ("billing", "sales", "")),
        (None, "sales", ("sales", "billing", "")),
    ],
)
def test_a_preference_makes_a_pair_and_keeps_which_side_was_seen_first(value: Any, text: str, pair: Any) -> None:
    found = label(row("preference", value, text))
    assert found["use"] == "pair" and found["weight"] == 1.0
    assert (found["chosen"], found["rejected"], found["shown_first"]) == pair


@pytest.mark.parametrize("value", [{"models": ["a", "b"]}, {"chosen": "x", "rejected": "x"}, {"chosen": "x"}])
def test_a_preference_between_things_that_are_not_two_texts_makes_none(value: Any) -> None:
    assert make_label(target(), [row("preference", value)], POLICY, NOW) is None


def test_a_preferred_answer_is_the_models_own_only_when_it_is() -> None:
    other = row("preference", {"chosen": "sales", "rejected": "refunds"})
    assert label(UP, other)["self_generated"] is False
    mine = row("preference", {"chosen": "billing", "rejected": "refunds"})
    assert label(mine)["self_generated"] is True


def test_preferences_that_disagree_make_no_pair() -> None:
    one = row("preference", {"chosen": "a", "rejected": "b"}, author="x")
    other = row("preference", {"chosen": "b", "rejected": "a"}, author="y")
    assert make_label(target(), [one, other], POLICY, NOW) is None
    reviewed = row("preference", {"chosen": "b", "rejected": "a"}, source="reviewer")
    assert label(one, reviewed)["chosen"] == "b"


def test_a_pair_goes_with_a_target_only_when_they_agree() -> None:
    prefers = row("preference", {"chosen": "billing", "rejected": "sales"})
    passed = row("outcome", True, source="verifier")
    assert label(passed, prefers)["rejected"] == "sales"
    assert label(CORRECTION, prefers)["rejected"] == ""


def test_the_word_of_an_author_who_was_often_wrong_weighs_less_and_never_judges() -> None:
    worth = {("user", "a"): 0.5}
    found = label(CORRECTION, worth=worth)
    assert (found["use"], found["weight"]) == ("sft", 0.5)
    found = label(CORRECTION, worth={("user", "a"): 0.2})
    assert (found["use"], found["reasons"]) == ("none", ["corrected by the user", DOUBTED, UNSURE])
    assert label(CORRECTION, worth=worth, audit=True)["use"] == "none"
    assert label(CORRECTION, worth={("user", "b"): 0.5}, audit=True)["use"] == "eval"


def test_who_is_not_believed_brings_nobody_into_a_conflict() -> None:
    spam = row("correction", text="spam", author="mallory")
    assert label(CORRECTION, spam)["reasons"][0] == CONFLICT
    found = label(CORRECTION, spam, worth={("user", "mallory"): 0.2})
    assert (found["use"], found["chosen"]) == ("sft", "sales")


def test_a_label_waits_longest_for_what_may_still_change() -> None:
    assert label(row("outcome", True))["matured_at"] == START + timedelta(days=7)
    assert label(row("outcome", True), UP)["matured_at"] == START + timedelta(days=7)
    soon = LabelPolicy.model_validate({"maturity_hours": 1, "maturity_hours_of": {"thumb": 2, "outcome": 0}})
    assert label(row("outcome", True), policy=soon)["matured_at"] == START + timedelta(hours=1)
    assert label(UP, policy=soon)["matured_at"] == START + timedelta(hours=2)


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
    ["thumb", "rating", "label", "correction", "comment", "outcome", "regenerate", "accept", "says", "preference"]
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
    assert found["use"] in (("eval", "none") if audit else ("sft", "pair", "kto", "none"))
    assert 0 <= found["y"] <= 1 and found["reasons"]
    assert (found["weight"] > 0) == (found["use"] != "none")
    if found["use"] in ("sft", "pair", "eval"):
        assert found["chosen"] and found["chosen"] != found["rejected"]
        if found["self_generated"]:
            assert found["chosen"] == "billing"
    if found["use"] == "kto":
        assert found["chosen"] == ("billing" if found["y"] > 0.5 else "") and not found["rejected"]
    if found["use"] == "pair":
        assert found["rejected"]
