"""Steps, learning rates and the order of examples, against their closed forms."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.training.schedule import batch_plan, learning_rate, step_count


@pytest.mark.parametrize(
    ("examples", "epochs", "max_steps", "steps"),
    [(64, 2.0, 400, 16), (65, 2.0, 400, 17), (64, 0.5, 400, 4), (3, 0.1, 400, 1), (10_000, 3.0, 36, 36)],
)
def test_steps_are_epochs_over_batches_up_to_the_maximum(
    examples: int, epochs: float, max_steps: int, steps: int
) -> None:
    assert step_count(examples, batch_size=8, epochs=epochs, max_steps=max_steps) == steps


def test_the_learning_rate_rises_to_its_peak_and_falls_to_zero_in_straight_lines() -> None:
    rates = [learning_rate(step, steps=20, warmup_share=0.2, peak=8.0) for step in range(21)]
    assert rates[:5] == [2.0, 4.0, 6.0, 8.0, 8.0]
    assert rates[5:] == pytest.approx([8.0 * (20 - step) / 16 for step in range(5, 21)])
    assert rates[20] == 0.0


@given(steps=st.integers(1, 300), share=st.floats(0, 0.99), peak=st.floats(1e-6, 1.0))
def test_every_step_learns_and_none_exceeds_the_peak(steps: int, share: float, peak: float) -> None:
    rates = [learning_rate(step, steps=steps, warmup_share=share, peak=peak) for step in range(steps)]
    assert all(0 < rate <= peak for rate in rates)
    assert max(rates) == peak


@given(
    lengths=st.lists(st.integers(1, 500), min_size=1, max_size=120),
    batch_size=st.integers(1, 16),
    seed=st.integers(0, 5),
)
def test_an_epoch_uses_every_example_once_in_batches_of_nearly_one_size(
    lengths: list[int], batch_size: int, seed: int
) -> None:
    ids = [f"example-{number}" for number in range(len(lengths))]
    steps = math.ceil(len(lengths) / batch_size)
    plan = batch_plan(ids, lengths, seed=seed, batch_size=batch_size, steps=2 * steps)
    for epoch in (plan[:steps], plan[steps:]):
        assert Counter(index for batch in epoch for index in batch) == Counter(range(len(lengths)))
    sizes = {len(batch) for batch in plan}
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1


@given(order=st.permutations(range(40)))
def test_the_order_follows_from_ids_and_seed_not_from_the_order_of_rows(order: list[int]) -> None:
    ids = [f"example-{number}" for number in range(40)]
    lengths = [10 + number % 3 for number in range(40)]  # were all different, they alone would give the order
    plan = batch_plan(ids, lengths, seed=3, batch_size=8, steps=10)
    shuffled = batch_plan(
        [ids[index] for index in order], [lengths[index] for index in order], seed=3, batch_size=8, steps=10
    )
    assert [[ids[order[index]] for index in batch] for batch in shuffled] == [
        [ids[index] for index in batch] for batch in plan
    ]


def test_seed_and_epoch_change_the_order() -> None:
    ids, lengths = [str(number) for number in range(64)], [10] * 64
    plan = batch_plan(ids, lengths, seed=0, batch_size=8, steps=16)
    assert plan[:8] != plan[8:]
    assert plan != batch_plan(ids, lengths, seed=1, batch_size=8, steps=16)


def test_like_lengths_share_batches() -> None:
    ids = [str(number) for number in range(512)]
    lengths = [10 if number % 2 else 300 for number in range(512)]
    plan = batch_plan(ids, lengths, seed=0, batch_size=8, steps=64)
    padding = sum(max(lengths[i] for i in batch) * len(batch) - sum(lengths[i] for i in batch) for batch in plan)
    assert padding < 0.15 * sum(lengths)
