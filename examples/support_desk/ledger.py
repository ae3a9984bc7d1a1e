"""Counts of every request and what came of it, and marks for the chart. Threads may write at once."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """One answered request whose truth is known: seconds since the start, and whether the route was right."""

    at: float
    right: bool


@dataclass(frozen=True)
class Mark:
    """Something to draw into the chart. Kinds: promote, reject, queues, rollback, forward."""

    at: float
    kind: str
    text: str


@dataclass
class Ledger:
    """What happened so far."""

    started: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    requests: int = 0
    to_task: int = 0
    faults: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def now(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self.started

    def answered(self, right: bool | None) -> None:
        """A whole answer came. ``right`` is None when it was not the task that answered (the baseline)."""
        with self._lock:
            self.requests += 1
            if right is not None:
                self.to_task += 1
                self.samples.append(Sample(self.now(), right))

    def failed(self, reason: str) -> None:
        """No answer came, or half of one."""
        with self._lock:
            self.requests += 1
            self.faults.append(reason)

    def mark(self, kind: str, text: str) -> None:
        """Remember a moment."""
        with self._lock:
            self.marks.append(Mark(self.now(), kind, text))

    def counts(self) -> tuple[int, int, int]:
        """Requests to the task that were answered, all requests, and failed ones."""
        with self._lock:
            return self.to_task, self.requests, len(self.faults)
