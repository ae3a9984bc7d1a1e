from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.config import DataPolicy
from flywheel.datasets.caps import SMALLEST_SHARE_CAP, cap, largest_user_share
from flywheel.datasets.rows import Row, make_row


def row(number: int, user: str, cluster: str | None = None, weight: float = 1.0) -> Row:
    made = make_row(
        [{"role": "user", "content": f"text {number}"}],
        {"role": "assistant", "content": "t"},
        None,
        interaction_id=f"i{number}",
        user_key=user,
        weight=weight,
    )
    return replace(made, cluster_id=cluster or f"k{number}")


def test_a_flood_by_few_users_ends_at_the_cap() -> None:
    flood = [row(n, f"bad{n % 3}") for n in range(600)]
    honest = [row(1000 + n, f"user{n}") for n in range(500)]
    capped = cap([*flood, *honest], DataPolicy())
    kept = Counter(r.user_key for r in capped.rows)
    assert {kept[f"bad{n}"] for n in range(3)} == {11}  # 2 % of the 533 rows that stay, not of the 1,100 that came
    assert sum(kept.values()) == 533
    assert capped.dropped == {"user_cap": 567}
    assert (capped.users, capped.per_user) == (3, 11)


def test_the_absolute_count_holds_where_the_share_would_allow_more() -> None:
    rows = [row(n, "big") for n in range(100)] + [row(1000 + n, f"u{n}") for n in range(3000)]
    assert sum(r.user_key == "big" for r in cap(rows, DataPolicy()).rows) == 20


def test_a_small_dataset_leaves_every_user_a_few_rows() -> None:
    rows = [row(n, f"u{n % 4}") for n in range(40)]
    assert Counter(r.user_key for r in cap(rows, DataPolicy()).rows) == {f"u{n}": SMALLEST_SHARE_CAP for n in range(4)}
    assert len(cap(rows, DataPolicy(max_per_user=2)).rows) == 8


def test_one_user_has_at_most_three_rows_of_a_cluster() -> None:
    capped = cap([row(n, "u", "same") for n in range(5)] + [row(9, "v", "same")], DataPolicy())
    assert Counter(r.user_key for r in capped.rows) == {"u": 3, "v": 1}
    assert capped.dropped == {"user_cluster_cap": 2}


def test_a_cluster_is_capped_over_all_users_and_the_unknown_too() -> None:
    capped = cap([row(n, "" if n % 2 else f"u{n}", "same") for n in range(50)], DataPolicy(max_cluster_share=1))
    assert len(capped.rows) == 20
    assert capped.dropped == {"cluster_cap": 30}
    assert capped.users == 0


def test_a_cluster_has_at_most_its_share_and_a_few_rows_in_any_case() -> None:
    flood = [row(n, f"u{n}", "same") for n in range(50)]
    others = [row(n, f"u{n}") for n in range(100, 180)]
    assert cap(flood, DataPolicy()).dropped == {"cluster_cap": 45}
    kept = cap([*flood, *others], DataPolicy(max_cluster_share=0.1)).rows
    assert sum(one.cluster_id == "same" for one in kept) == 9  # a tenth of 89


def test_unknown_users_are_not_one_user() -> None:
    assert len(cap([row(n, "") for n in range(100)], DataPolicy()).rows) == 100


def test_heavier_rows_stay() -> None:
    rows = [row(n, "u", weight=n / 10) for n in range(1, 10)]
    assert {r.interaction_id for r in cap(rows, DataPolicy()).rows} == {f"i{n}" for n in range(5, 10)}


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("xyz")), max_size=120),
    st.integers(1, 30),
    st.floats(0.01, 0.5),
    st.randoms(use_true_random=False),
)
def test_both_caps_hold_on_what_is_kept_in_any_order(
    made: list[tuple[str, str]], per_user: int, share: float, order: object
) -> None:
    rows = [row(n, user, cluster) for n, (user, cluster) in enumerate(made)]
    policy = DataPolicy(max_per_user=per_user, max_user_share=share, max_per_cluster=15)
    capped = cap(rows, policy)
    most = max(Counter(r.user_key for r in capped.rows).values(), default=0)
    assert most <= min(per_user, max(SMALLEST_SHARE_CAP, math.ceil(share * len(capped.rows))))
    assert max(Counter(r.cluster_id for r in capped.rows).values(), default=0) <= 15
    assert max(Counter((r.user_key, r.cluster_id) for r in capped.rows).values(), default=0) <= 3
    assert len(capped.rows) + capped.dropped.total() == len(rows)
    shuffled = list(rows)
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert cap(shuffled, policy).rows == capped.rows


def test_the_largest_user_share_ignores_unknown_users() -> None:
    assert largest_user_share([row(1, "a"), row(2, "a"), row(3, ""), row(4, "")]) == 0.5
    assert largest_user_share([]) == 0.0
