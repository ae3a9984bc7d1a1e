"""Prompts whose answers have not come, in memory.

Instrumentations of the older conventions send every message as a log record of its own: those of the prompt before the
model is asked, that of the answer after it. An exporter's timer fires in between, so one call comes in two exports.
Without its prompt an answer is worth nothing, so the prompt waits here and is written with the answer.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from flywheel.intake.formats.otel import asks, tells
from flywheel.intake.formats.otlp import Span, spans
from flywheel.intake.records import Json

MOST_BYTES = 64 * 2**20
LONGEST_S = 900.0
"""An answer that takes longer has lost its prompt. So long a prompt is kept, also for an answer that is sent twice."""

Key = tuple[str | None, str | None]


class Prompts:
    """The log records of prompts, by trace and span; the oldest go first when there are too many."""

    def __init__(self) -> None:
        self._held: OrderedDict[Key, tuple[float, int, list[Json]]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def complete(self, span: Span, body: Json, size: int) -> int:
        """Put what came before into an export's log records of one span, and keep what belongs to a prompt.

        Args:
            span: as read from ``body``; its events are brought up to date too.
            size: bytes of the records.

        Returns their bytes together with what came before.
        """
        key = (span.trace_id, span.span_id)
        if span.span_id is None:
            return size
        (scope,) = body["resourceLogs"][0]["scopeLogs"]
        with self._lock:
            self._forget(time.monotonic() - LONGEST_S)
            _, before, held = self._held.get(key, (0.0, 0, []))
            scope["logRecords"] = [*held, *(record for record in scope["logRecords"] if record not in held)]
            (whole,) = spans(body)
            span.events[:] = whole.events
            if asks(whole) and not tells(whole):
                self._held.pop(key, None)
                self._held[key] = (time.monotonic(), before + size, scope["logRecords"])
                self._bytes += size
            return before + size

    def _forget(self, until: float) -> None:
        while self._held:
            key, (since, size, _) = next(iter(self._held.items()))
            if since >= until and self._bytes <= MOST_BYTES:
                return
            del self._held[key]
            self._bytes -= size
