"""What a caller hands to the engine and gets back from it."""

from __future__ import annotations

import itertools
import math
import queue
from collections.abc import Callable
from dataclasses import dataclass, field

from flywheel.engine.sampling import RowSampler, SamplingParams
from flywheel.engine.text import AnswerText
from flywheel.errors import CheckpointError


@dataclass(frozen=True)
class Token:
    """One generated token. ``text`` is what became certain with it, often ``""``; ``logprob`` is the model's own."""

    text: str
    token_id: int
    logprob: float


@dataclass(frozen=True)
class Finished:
    """The answer is complete: ``stop`` by its end-of-turn token or a stop string, or ``length``."""

    finish_reason: str
    text: str
    completion_tokens: int
    prompt_tokens: int


@dataclass(frozen=True)
class Failed:
    """The answer could not be completed."""

    error: Exception


Event = Token | Finished | Failed
OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class Completion:
    """A whole answer. ``ids`` and ``logprobs`` include the end-of-turn token when there was one."""

    text: str
    ids: list[int]
    logprobs: list[float]
    finish_reason: str
    prompt_tokens: int


def collect(events: queue.SimpleQueue[Event]) -> Completion:
    """Wait for a whole answer on a queue of its events. Raises what the request failed with."""
    ids: list[int] = []
    logprobs: list[float] = []
    while True:
        event = events.get()
        if isinstance(event, Token):
            ids.append(event.token_id)
            logprobs.append(event.logprob)
        elif isinstance(event, Finished):
            return Completion(event.text, ids, logprobs, event.finish_reason, event.prompt_tokens)
        else:
            raise event.error


_order = itertools.count()


@dataclass(eq=False)
class Request:
    """One answer being made. Everything but ``cancelled`` belongs to the engine thread once submitted."""

    prompt_ids: list[int]
    params: SamplingParams
    adapter: str | None
    on_event: OnEvent
    priority: int
    budget: int
    answer: AnswerText
    sampler: RowSampler
    order: int = field(default_factory=lambda: next(_order))
    read: int = 0
    produced: int = 0
    last_token: int = -1
    cancelled: bool = False

    def __lt__(self, other: Request) -> bool:
        """Who is admitted first: the higher priority, then the earlier."""
        return (-self.priority, self.order) < (-other.priority, other.order)

    @property
    def length(self) -> int:
        """Tokens of this row that are in the cache."""
        return len(self.prompt_ids) + max(0, self.produced - 1)

    def take(self, token: int, logprob: float, eos: frozenset[int]) -> tuple[Token, Finished | None]:
        """Account for one generated token: its event, and the last event if the answer ends with it."""
        if math.isnan(logprob):
            served = f"adapter {self.adapter!r}" if self.adapter else "the base model"
            raise CheckpointError(f"{served} gave logits that are not finite; it must not be served")
        self.produced += 1
        self.last_token = token
        ended = token in eos
        piece = "" if ended else self.answer.push(token)
        full = self.produced >= self.budget
        if (ended or full) and not self.answer.stopped:
            piece += self.answer.finish()
        event = Token(piece, token, logprob)
        if not (ended or full or self.answer.stopped):
            return event, None
        reason = "stop" if ended or self.answer.stopped else "length"
        return event, Finished(reason, self.answer.text, self.produced, len(self.prompt_ids))


class Handle:
    """A submitted request."""

    def __init__(self, request: Request, wake: Callable[[], None]) -> None:
        self._request = request
        self._wake = wake

    def cancel(self) -> None:
        """Give up the answer: its row is free after the running step, and no event follows then."""
        self._request.cancelled = True
        self._wake()
