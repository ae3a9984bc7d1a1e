"""The customers: a steady background of messages, and bursts that an act of the story needs."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from examples.support_desk.client import Answer, Gateway
from examples.support_desk.phrases import Message

BACKGROUND_PER_S = 1.0
BACKGROUND_WORKERS = 4
BURST_WORKERS = 6
STREAM_SHARE = 0.25


@dataclass(frozen=True)
class Exchange:
    """A message, who sent it, and the answer."""

    message: Message
    user: str
    answer: Answer


class Background:
    """Customers who write all day: about one message a second, until the context ends.

    Each worker sends its next message when it is due and the last is answered, so a slow desk is never flooded. What
    they say is never labelled by agents; reviewers may meet it in the audit sample.
    """

    def __init__(self, gateway: Gateway, seed: int = 0) -> None:
        self._gateway = gateway
        self._rng = random.Random(seed)
        self._pool: list[Message] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.asked: dict[str, Message] = {}

    def add(self, messages: Sequence[Message]) -> None:
        """From now on customers also write these."""
        with self._lock:
            self._pool.extend(messages)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Customers write while the context lasts."""
        period = BACKGROUND_WORKERS / BACKGROUND_PER_S
        workers = [
            threading.Thread(target=self._work, args=(number, period), name=f"customer-{number}", daemon=True)
            for number in range(BACKGROUND_WORKERS)
        ]
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            self._over.set()
            for worker in workers:
                worker.join()

    def _work(self, number: int, period: float) -> None:
        due = time.monotonic() + number * period / BACKGROUND_WORKERS
        while not self._over.wait(max(0.0, due - time.monotonic())):
            with self._lock:
                message = self._rng.choice(self._pool)
                user, stream = f"guest-{self._rng.randrange(5000)}", self._rng.random() < STREAM_SHARE
            answer = self._gateway.ask(message, user, stream=stream)
            if answer is not None:
                with self._lock:
                    self.asked[answer.interaction_id] = message
            due = max(due + period, time.monotonic())


def burst(
    gateway: Gateway,
    messages: Sequence[Message],
    users: Sequence[str],
    progress: Callable[[int, int], None],
    *,
    seed: int = 0,
) -> list[Exchange]:
    """Send the messages, a few at a time; message ``i`` comes from ``users[i % len(users)]``. Failures are left out."""
    rng = random.Random(seed)
    jobs = [(message, user, rng.random() < STREAM_SHARE) for message, user in zip(messages, itertools.cycle(users))]
    exchanges: list[Exchange] = []
    with ThreadPoolExecutor(BURST_WORKERS, thread_name_prefix="burst") as pool:
        try:
            futures = [pool.submit(gateway.ask, message, user, stream=stream) for message, user, stream in jobs]
            for number, (future, (message, user, _)) in enumerate(zip(futures, jobs, strict=True), 1):
                answer = future.result()
                if answer is not None:
                    exchanges.append(Exchange(message, user, answer))
                progress(number, len(jobs))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return exchanges
