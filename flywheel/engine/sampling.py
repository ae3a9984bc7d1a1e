"""Choosing the next token of each row."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from flywheel.errors import RequestError


@dataclass(frozen=True)
class SamplingParams:
    """How one answer is drawn.

    Attributes:
        max_tokens: at most so many tokens, the end-of-turn token included.
        temperature: 0 takes the likeliest token.
        top_p: draw from the smallest set of likeliest tokens with at least this much probability.
        seed: equal seeds give equal draws whatever else runs; None draws anew.
        stop: texts that end the answer and are not part of it.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise RequestError(f"max_tokens must be at least 1, not {self.max_tokens}", param="max_tokens")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise RequestError(f"temperature must be at least 0, not {self.temperature}", param="temperature")
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p must be above 0 and at most 1, not {self.top_p}", param="top_p")


class RowSampler:
    """The draws of one request; its random numbers depend on its seed and on nothing else."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self._random = random.Random(params.seed)

    def draw(self, logits: torch.Tensor) -> int:
        """A token id for logits [vocab] in float32, at a temperature above 0."""
        probabilities = torch.softmax(logits / self.params.temperature, -1)
        if self.params.top_p < 1:
            probabilities, order = probabilities.sort(descending=True, stable=True)
            cumulative = probabilities.double().cumsum(0)
            kept = int(torch.searchsorted(cumulative, self.params.top_p)) + 1
            return int(order[self._pick(cumulative[:kept])])
        return self._pick(probabilities.double().cumsum(0))

    def _pick(self, cumulative: torch.Tensor) -> int:
        point = self._random.random() * float(cumulative[-1])
        return min(int(torch.searchsorted(cumulative, point, right=True)), len(cumulative) - 1)


def choose_tokens(logits: torch.Tensor, samplers: Sequence[RowSampler]) -> tuple[list[int], list[float]]:
    """The next token of each row and its log-probability under the model (at temperature 1, before top_p).

    Args:
        logits: [rows, vocab], any float dtype.
        samplers: one for each row.

    Returns:
        token ids, and log-probabilities; a row whose logits are not finite has NaN there, and its id means nothing.
    """
    values = logits.float()
    tokens = values.argmax(-1)
    for row, sampler in enumerate(samplers):
        if sampler.params.temperature > 0 and math.isfinite(float(values[row, tokens[row]])):
            tokens[row] = sampler.draw(values[row])
    chosen = values.gather(1, tokens.unsqueeze(1)).squeeze(1)
    return tokens.tolist(), (chosen - values.logsumexp(-1)).tolist()
