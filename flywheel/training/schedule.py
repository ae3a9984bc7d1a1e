"""The course of a run, in closed form: how many steps, which examples in each, at which learning rate.

Nothing here draws from a random generator: the order comes from hashes of (seed, epoch, example), so a run that is
resumed at a step knows the rest of its course from the step alone.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence


def step_count(examples: int, *, batch_size: int, epochs: float, max_steps: int) -> int:
    """``min(max_steps, ceil(epochs * examples / batch_size))``, at least 1."""
    return max(1, min(max_steps, math.ceil(epochs * examples / batch_size)))


def learning_rate(step: int, *, steps: int, warmup_share: float, peak: float) -> float:
    """Linear warm-up, then linear decay to 0 at ``steps``.

    Args:
        step: 0-based. The warm-up's last step is the first at ``peak``; no step runs at 0.
        warmup_share: share of the steps, rounded up; the whole run is never warm-up.
    """
    warmup = min(math.ceil(warmup_share * steps), steps - 1)
    if step < warmup:
        return peak * ((step + 1) / warmup)
    return peak * ((steps - step) / (steps - warmup))


def batch_plan(
    ids: Sequence[str], lengths: Sequence[int], *, seed: int, batch_size: int, steps: int
) -> list[list[int]]:
    """Indices of the examples of each step.

    Every epoch shuffles the examples and cuts them into ``ceil(n / batch_size)`` batches whose sizes differ by at most
    one, so that no lone example gets the pull of a whole batch. Inside windows of eight batches, examples of like
    length go together, which saves padding. An example is never twice in one batch.

    Args:
        ids: example ids; with ``seed`` they decide the order, whatever order they come in.
        lengths: tokens per example.
        steps: batches wanted; epochs are added until there are as many, and the last may be cut short.
    """
    plan: list[list[int]] = []
    epoch = 0
    while len(plan) < steps:
        plan.extend(_epoch(ids, lengths, f"{seed}|{epoch}", batch_size))
        epoch += 1
    return plan[:steps]


def _epoch(ids: Sequence[str], lengths: Sequence[int], key: str, batch_size: int) -> list[list[int]]:
    shuffled = sorted(range(len(ids)), key=lambda index: _hash(f"{key}|{ids[index]}"))
    count = math.ceil(len(ids) / batch_size)
    window = 8 * batch_size
    bucketed = [
        index
        for start in range(0, len(shuffled), window)
        for index in sorted(shuffled[start : start + window], key=lambda index: lengths[index])
    ]
    borders = [len(ids) * number // count for number in range(count + 1)]
    batches = [bucketed[begin:end] for begin, end in itertools.pairwise(borders)]
    order = sorted(range(count), key=lambda number: _hash(f"{key}|batch|{number}"))
    return [batches[number] for number in order]


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
