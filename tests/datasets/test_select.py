from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flywheel.datasets.rows import Row, make_row
from flywheel.datasets.select import cap_self_generated, own_rows_allowed, settle


def row(text: str, target: str, number: int, **about: Any) -> Row:
    return make_row(
        [{"role": "user", "content": text}],
        {"role": "assistant", "content": target},
        None,
        interaction_id=f"i{number}",
        conversation_id=f"c{number}",
        **about,
    )


def targets(rows: list[Row]) -> list[str]:
    return [r.target for r in rows]


def test_one_row_stays_of_copies_and_it_is_the_heaviest() -> None:
    kept, dropped = settle([row("Hi", "greet", 1, weight=0.5), row("hi ", "greet", 2, weight=1.0)])
    assert [r.interaction_id for r in kept] == ["i2"]
    assert dropped == {"duplicate": 1}


def test_the_majority_of_users_settles_a_contradiction() -> None:
    rows = [row("hi", "greet", n, user_key=f"u{n}") for n in range(2)] + [row("hi", "spam", 9, user_key="u9")]
    kept, dropped = settle(rows)
    assert targets(kept) == ["greet"]
    assert dropped == {"duplicate": 1, "contradiction": 1}


def test_weight_settles_what_numbers_do_not() -> None:
    kept, _ = settle([row("hi", "greet", 1, user_key="a", weight=1.0), row("hi", "spam", 2, user_key="b", weight=0.5)])
    assert targets(kept) == ["greet"]


def test_a_tie_teaches_nothing_and_is_counted() -> None:
    kept, dropped = settle([row("hi", "greet", 1, user_key="a"), row("hi", "spam", 2, user_key="b"), row("ho", "x", 3)])
    assert targets(kept) == ["x"]
    assert dropped == {"contradiction_tie": 2}


def test_repeating_oneself_gives_no_second_vote() -> None:
    loud = [row("hi", "spam", n, user_key="loud") for n in range(10)]
    kept, dropped = settle([*loud, row("hi", "greet", 20, user_key="a"), row("hi", "greet", 21, user_key="b")])
    assert targets(kept) == ["greet"]
    assert dropped["contradiction"] == 10


def test_a_user_who_changes_their_mind_is_taken_at_the_last_word() -> None:
    kept, _ = settle([row("hi", "old", 1, user_key="a", seq=5, weight=2.0), row("hi", "new", 2, user_key="a", seq=6)])
    assert targets(kept) == ["new"]


def test_unknown_users_speak_per_conversation() -> None:
    kept, _ = settle([row("hi", "greet", 1), row("hi", "greet", 2), row("hi", "spam", 3, user_key="a")])
    assert targets(kept) == ["greet"]


def test_different_instructions_over_the_same_words_do_not_contradict() -> None:
    def told(system: str, target: str) -> Row:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]
        return make_row(messages, {"role": "assistant", "content": target}, None)

    kept, dropped = settle([told("Route.", "billing"), told("Translate.", "salut")])
    assert len(kept) == 2
    assert not dropped


@given(st.permutations([(t, u, w) for t in ("a", "b", "c") for u in ("x", "y") for w in (0.1, 0.2, 0.7)]))
def test_the_outcome_does_not_depend_on_the_order_of_rows(rows: list[tuple[str, str, float]]) -> None:
    def made(t: str, u: str, w: float) -> Row:
        return make_row(
            [{"role": "user", "content": "hi"}],
            {"role": "assistant", "content": t},
            None,
            interaction_id=f"{t}{u}{w}",
            user_key=f"{t}{u}{w}",
            weight=w,
        )

    # Each target has the same weights, summed in another order: a tie, whatever the rounding on the way.
    kept, dropped = settle([made(*r) for r in rows])
    assert (kept, dropped) == ([], {"contradiction_tie": 18})


@given(st.integers(0, 300), st.floats(0, 0.99))
def test_the_allowed_number_of_own_answers_is_the_largest_within_the_share(human: int, share: float) -> None:
    allowed = own_rows_allowed(human, share)
    assert 0 <= allowed <= share * (allowed + human)
    assert allowed + 1 > share * (allowed + 1 + human)


def test_the_models_own_answers_stay_within_their_share() -> None:
    rows = [row(f"q{n}", "t", n, generated_by="r1" if n < 30 else "", weight=1 + n / 100) for n in range(40)]
    kept, dropped = cap_self_generated(rows, 0.5)
    own = [r for r in kept if r.self_generated]
    assert (len(kept), len(own)) == (20, 10)
    assert {r.interaction_id for r in own} == {f"i{n}" for n in range(20, 30)}, "the heaviest stay"
    assert dropped == {"self_generated_cap": 20}
    assert len(cap_self_generated(rows, 1.0)[0]) == 40
