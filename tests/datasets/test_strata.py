"""Fewer of what is common, all of what is rare."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from flywheel.datasets.rows import Row, make_row
from flywheel.datasets.strata import select


def rows(counts: dict[str, int]) -> list[Row]:
    return [
        make_row(
            [{"role": "user", "content": f"{target} {number}"}],
            {"role": "assistant", "content": target},
            None,
            interaction_id=f"{target}-{number}",
            weight=1.0 if number % 2 else 0.5,
        )
        for target, count in counts.items()
        for number in range(count)
    ]


def test_nothing_goes_while_there_is_room() -> None:
    kept, dropped = select(rows({"a": 3, "b": 2}), 5)
    assert len(kept) == 5 and not dropped


def test_the_common_are_capped_and_the_rare_stay() -> None:
    kept, dropped = select(rows({"common": 900, "usual": 100, "rare": 4}), 104)
    assert Counter(row.target for row in kept) == {"common": 75, "usual": 25, "rare": 4}
    assert dropped == {"beyond_selection": 900}


def test_the_heavier_rows_of_a_stratum_stay() -> None:
    kept, _ = select(rows({"a": 40, "b": 40}), 40)
    assert {row.weight for row in kept} == {1.0}


def test_where_every_answer_is_its_own_near_copies_are_the_strata() -> None:
    texts = [replace(row, cluster_id="flood") for row in rows({f"t{n}": 1 for n in range(100)})]
    alone = [replace(row, cluster_id=f"c{n}") for n, row in enumerate(rows({f"u{n}": 1 for n in range(10)}))]
    kept, _ = select([*texts, *alone], 20)
    assert sum(row.cluster_id == "flood" for row in kept) == 10


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 30), min_size=1), st.integers(1, 60), st.randoms())
def test_exactly_as_many_stay_as_wanted_in_any_order(counts: dict[str, int], most: int, chance: random.Random) -> None:
    found = rows(counts)
    kept, dropped = select(found, most)
    assert len(kept) == min(most, len(found)) and len(kept) + dropped.total() == len(found)
    chance.shuffle(found)
    assert {row.example_id for row in select(found, most)[0]} == {row.example_id for row in kept}
