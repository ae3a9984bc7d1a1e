"""Lines of a file to batches of records: a function of the lines alone, so that processes can share a long file."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from flywheel.errors import IntakeError
from flywheel.intake.batch import Batch, Item, Rejected, make_batch
from flywheel.intake.decode import decode
from flywheel.intake.detect import format_of
from flywheel.intake.formats import load_formats
from flywheel.intake.normalise import Normaliser
from flywheel.intake.places import Readable
from flywheel.intake.quarantine import MAX_RAW
from flywheel.intake.reader import Line
from flywheel.intake.records import BadRecord, Context, SkippedRecord
from flywheel.intake.sources import OpenFile, Source
from flywheel.store.home import Home
from flywheel.store.processes import die_with_parent

AHEAD = 3
"""Spans in the hands of each worker process: one at work, the others on their way there or back."""

Select = Callable[[Item], Item]
"""What a reading makes of an item: the item itself, or one that was `Rejected`."""


@dataclass(slots=True)
class Span:
    """Some lines of one file, in order.

    Args:
        last: whether the file ends with them.
        fault: why it ended before it should have, or nothing.
    """

    label: str
    file: Readable
    facts: OpenFile
    lines: list[Line]
    last: bool = False
    fault: str = ""


@dataclass(frozen=True)
class Mapper:
    """Makes batches of one task; every process makes the same of the same lines.

    Args:
        formats: files with formats of the user's own.
    """

    home: Home
    task: str
    tasks: frozenset[str]
    audit_share: float
    now: datetime
    formats: tuple[str, ...]

    def ready(self) -> tuple[Context, Normaliser]:
        """What mapping needs, made once for each process."""
        load_formats(self.formats)
        return Context(self.task, self.tasks), Normaliser(self.home, self.task, self.audit_share, self.now)


def map_lines(
    lines: Sequence[Line],
    label: str,
    source: Source,
    closed: bool,
    context: Context,
    normaliser: Normaliser,
    again: Select | None = None,
) -> Batch:
    """The batch of some lines of a file, up to an unterminated last one that may yet go on."""
    items: list[Item] = []
    weight = 0
    for line in lines:
        item = item_of(line, label, source, closed, context)
        if item is None:
            break
        items.append(item if again is None else again(item))
        # What a chat export unfolds into grows with its turns: each repeats what came before it.
        weight += len(line.raw) * (1 if isinstance(item.found, Rejected) else len(item.found))
    return make_batch(items, normaliser, weight)


@contextmanager
def workers(count: int, mapper: Mapper, source: Source) -> Iterator[ProcessPoolExecutor]:
    """Processes that map spans of a source. They end with this process, however it ends."""
    spawned = multiprocessing.get_context("spawn")  # a fork would take the caller's threads and locks along
    pool = ProcessPoolExecutor(count, spawned, _start_worker, (os.getpid(), mapper, replace(source, files=())))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _no_interrupt() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def map_ahead(pool: ProcessPoolExecutor, count: int, spans: Iterable[Span]) -> Iterator[tuple[Span, Batch]]:
    """Spans with their batches, in order, while the workers are at the next ones.

    Raises IntakeError when a worker was killed, for want of memory as a rule; what was committed stays.
    """
    under_way: deque[tuple[Span, Future[Batch]]] = deque()
    try:
        for span in spans:
            with _no_interrupt():  # a process that is starting inherits this until it knows to ignore Ctrl-C
                done = pool.submit(_map_span, span.lines, span.label, span.facts.closed)
            under_way.append((span, done))
            if len(under_way) > AHEAD * count:
                yield _finished(*under_way.popleft())
        while under_way:
            yield _finished(*under_way.popleft())
    except BrokenProcessPool as error:
        raise IntakeError(
            "a worker process was killed, most likely for want of memory; run it again to go on, with fewer --workers"
        ) from error


def _finished(span: Span, future: Future[Batch]) -> tuple[Span, Batch]:
    batch = future.result()
    batch.raws = [line.raw[:MAX_RAW] for line in span.lines[: len(batch.items)]]
    return span, batch


_worker: tuple[Source, Context, Normaliser]


def _start_worker(parent: int, mapper: Mapper, source: Source) -> None:
    global _worker
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    gc.disable()  # records hold no cycles
    _worker = (source, *mapper.ready())


def _map_span(lines: Sequence[Line], label: str, closed: bool) -> Batch:
    source, context, normaliser = _worker
    batch = map_lines(lines, label, source, closed, context, normaliser)
    batch.raws = []  # who sent the lines has them
    return batch


def item_of(line: Line, label: str, source: Source, closed: bool, context: Context) -> Item | None:
    """What a line is, or None when it is an unterminated last line that may yet go on.

    Args:
        closed: whether nobody will append to the file.
    """

    def rejected(outcome: str, reason: str) -> Item:
        return Item(label, line.offset, line.raw[:MAX_RAW], Rejected(outcome, reason))

    whole = line.terminated
    if not whole and not closed and (source.tail == "log" or line.oversize):
        return None
    if line.oversize:
        return rejected("quarantined", "line too long")
    if line.fault:
        return rejected("quarantined", line.fault) if whole or closed else None
    if not whole and source.tail == "log":
        return rejected("quarantined", "torn last line")
    try:
        record, repairs = decode(line.raw)
    except (BadRecord, SkippedRecord) as error:
        if not whole and not closed:
            return None
        skipped = isinstance(error, SkippedRecord)
        return rejected("skipped" if skipped else "quarantined", str(error) if whole or skipped else "torn last line")
    try:
        fmt = format_of(record, source.fmt, source.columns)
        found = fmt.records(record, context, repairs)
    except BadRecord as error:
        return rejected("quarantined", str(error))
    except SkippedRecord as error:
        return rejected("skipped", str(error))
    return Item(label, line.offset, line.raw[:MAX_RAW], found, frozenset(repairs))
