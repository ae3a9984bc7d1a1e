from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.datasets.rows import Row, make_row
from flywheel.datasets.split import split


def row(number: int, user: str = "", conversation: str = "", cluster: str = "") -> Row:
    made = make_row(
        [{"role": "user", "content": f"text {number}"}],
        {"role": "assistant", "content": "t"},
        None,
        interaction_id=f"i{number}",
        user_key=user,
        conversation_id=conversation,
    )
    return replace(made, cluster_id=cluster)


linked = st.tuples(*(st.sampled_from(["", *(f"{kind}{n}" for n in range(12))]) for kind in "uck"))


@settings(max_examples=150)
@given(st.lists(linked, max_size=50), st.floats(0, 0.9), st.randoms(use_true_random=False))
def test_no_user_conversation_or_cluster_is_on_both_sides(
    links: list[tuple[str, str, str]], share: float, order: random.Random
) -> None:
    rows = [row(n, *link) for n, link in enumerate(links)]
    done = split(rows, share)
    for field in ("user_key", "conversation_id", "cluster_id"):
        sides = [{getattr(r, field) for r in done if r.side == side} - {""} for side in ("train", "val")]
        assert not sides[0] & sides[1]
    assert not rows or any(r.side == "train" for r in done)
    shuffled = {r.example_id: r.side for r in split(order.sample(rows, len(rows)), share)}
    assert shuffled == {r.example_id: r.side for r in done}


def test_unlinked_rows_give_the_share_that_was_asked_for() -> None:
    assert sum(r.side == "val" for r in split([row(n) for n in range(200)], 0.1)) == 20


def test_rows_of_unknown_users_are_not_linked_by_that() -> None:
    assert {r.side for r in split([row(n) for n in range(10)], 0.5)} == {"train", "val"}


def test_links_hold_through_others() -> None:
    # 0 and 1 share a user, 1 and 2 a conversation, 2 and 3 a cluster: one group, so nothing can be set apart.
    chain = [row(0, "u"), row(1, "u", "c"), row(2, "", "c", "k"), row(3, "", "", "k")]
    assert {r.side for r in split(chain, 0.5)} == {"train"}


def test_a_share_of_nothing_sets_nothing_apart() -> None:
    assert {r.side for r in split([row(n) for n in range(10)], 0.0)} == {"train"}
