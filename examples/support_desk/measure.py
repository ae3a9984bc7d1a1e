"""Accuracy with its Wilson interval, of the task live and of the untrained base model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from openai.types.chat import ChatCompletionMessageParam

from examples.support_desk.client import Gateway
from examples.support_desk.people import right
from examples.support_desk.phrases import Message
from examples.support_desk.plan import MODEL
from examples.support_desk.simulator import BURST_WORKERS, Exchange, burst

Z = 1.959964
"""Two-sided 95 %."""


@dataclass(frozen=True)
class Accuracy:
    """``hits`` of ``n``. An interval without messages is the whole range."""

    hits: int
    n: int

    @property
    def value(self) -> float:
        """The share that was right."""
        return self.hits / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's score interval at 95 % (Wilson 1927)."""
        if not self.n:
            return 0.0, 1.0
        share, z2 = self.value, Z * Z
        middle = (share + z2 / (2 * self.n)) / (1 + z2 / self.n)
        half = Z / (1 + z2 / self.n) * math.sqrt(share * (1 - share) / self.n + z2 / (4 * self.n**2))
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


@dataclass(frozen=True)
class Live:
    """Live accuracy on test messages: all, those of old queues, and those of new ones."""

    all: Accuracy
    old: Accuracy
    new: Accuracy
    releases: frozenset[str]


def live(gateway: Gateway, test: Sequence[Message], later: Sequence[str], progress: Callable[[int, int], None]) -> Live:
    """Send test messages as ordinary traffic. Nobody gives feedback on them, so nothing can be learned from them.

    A failed request counts as a wrong answer.
    """
    exchanges = burst(gateway, test, [f"visitor-{number}" for number in range(len(test))], progress)
    new = frozenset(later)
    return Live(
        all=_count(exchanges, test),
        old=_count([e for e in exchanges if e.message.queue not in new], [m for m in test if m.queue not in new]),
        new=_count([e for e in exchanges if e.message.queue in new], [m for m in test if m.queue in new]),
        releases=frozenset(exchange.answer.release for exchange in exchanges),
    )


def baseline(
    gateway: Gateway,
    test: Sequence[Message],
    shots: Sequence[Message],
    queues: Sequence[str],
    max_tokens: int,
    progress: Callable[[int, int], None],
) -> Accuracy:
    """The untrained model with the queue list in its prompt, and with ``shots`` solved examples before the message.

    Kinder than the live score: an answer counts when the first queue it names is the right one.
    """
    prompt: ChatCompletionMessageParam = {
        "role": "system",
        "content": f"Route the message to one of these queues: {', '.join(queues)}. Answer with the queue's name only.",
    }
    solved: list[ChatCompletionMessageParam] = []
    for shot in shots:
        solved += [{"role": "user", "content": shot.text}, {"role": "assistant", "content": shot.queue}]

    def ask(message: Message) -> str:
        asked: ChatCompletionMessageParam = {"role": "user", "content": message.text}
        return gateway.complete(MODEL, [prompt, *solved, asked], max_tokens)

    hits = 0
    with ThreadPoolExecutor(BURST_WORKERS, thread_name_prefix="baseline") as pool:
        try:
            for number, (message, answer) in enumerate(zip(test, pool.map(ask, test), strict=True), 1):
                hits += first_named(answer, queues) == message.queue
                progress(number, len(test))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return Accuracy(hits, len(test))


def first_named(answer: str, queues: Sequence[str]) -> str | None:
    """The queue whose name comes first in an answer, as a word of its own; of two at one place the longer."""
    found = []
    for queue in queues:
        match = re.search(rf"(?<!\w){re.escape(queue)}(?!\w)", answer, re.IGNORECASE)
        if match:
            found.append((match.start(), -len(queue), queue))
    return min(found)[2] if found else None


def _count(exchanges: Sequence[Exchange], asked: Sequence[Message]) -> Accuracy:
    return Accuracy(sum(right(e.answer.text, e.message.queue) for e in exchanges), len(asked))
