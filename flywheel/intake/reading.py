"""Reading a source from its resume points to its end: spans of lines to batches, batches to chunks of bounded size."""

from __future__ import annotations

import gc
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.intake.batch import Batch, Mapped
from flywheel.intake.chunk import ChunkWriter, Outcome
from flywheel.intake.csv_rows import TORN
from flywheel.intake.mapping import Mapper, Select, Span, map_ahead, map_lines, workers
from flywheel.intake.places import Readable
from flywheel.intake.reader import FileFault, Line
from flywheel.intake.report import SourceReport
from flywheel.intake.sources import (
    NOTHING,
    UNREAD,
    WAITING,
    OpenFile,
    Source,
    look,
    new_lines,
    resume_point,
    torn_mark,
)
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

CHUNK_RECORDS = 20_000
CHUNK_BYTES = 64 * 2**20

SPAN_RECORDS = 200
SPAN_BYTES = 2**20

ALONE_SPANS = 80
"""Spans that are mapped before it is worth while to start other processes."""

Progress = Callable[[SourceReport], None]


class Reading:
    """Reads sources of one task in one run."""

    def __init__(
        self,
        config: Config,
        home: Home,
        registry: Registry,
        task: str,
        run: str,
        progress: Progress | None = None,
        workers: int = 1,
    ) -> None:
        share, now = config.task(task).labels.audit_share, datetime.now(UTC)
        self._mapper = Mapper(home, task, frozenset(config.tasks), share, now, config.formats)
        self.context, self.normaliser = self._mapper.ready()
        self.writer = ChunkWriter(home, registry, task, run, now)
        self._registry, self._task, self._progress, self._workers = registry, task, progress, workers

    def position(self, source: Source) -> tuple[dict[str, Any], datetime | None]:
        """The stored resume points by file label, and the watermark."""
        table = schema.sources
        with self._registry.read() as tx:
            row = tx.row(sa.select(table).where(table.c.task == self._task, table.c.source == source.name))
        if row is None:
            return {}, None
        mark = row["watermark"]
        return dict(row["position"]["files"]), datetime.fromisoformat(mark) if mark else None

    def read(self, source: Source, again: Select | None = None, *, anew: bool = False) -> SourceReport:
        """Read a source to its end, committing chunk by chunk.

        Args:
            again: read from the start of every file, what this makes of each item, and leave the resume points and the
                watermark as they are.
            anew: read from the start of every file, and set the resume points as a first reading does.
        """
        with rare_collections():
            return self._read(source, again, anew)

    def _read(self, source: Source, again: Select | None, anew: bool) -> SourceReport:
        positions, watermark = self.position(source)
        keep = again is not None and not anew
        begin = {} if anew or keep else positions
        batches: list[Batch] = []
        count = weight = 0
        notes: list[str] = []
        touched: dict[str, tuple[Readable, int, OpenFile, str, str, str]] = {}
        ends: dict[str, int] = {}
        torn: dict[str, str] = {}
        stopped: set[str] = set()
        with _Behind(self.writer, source.name, None if keep else positions, watermark, self._progress) as behind:
            for span, batch in self._mapped(source, begin, again):
                label, file, facts, taken = span.label, span.file, span.facts, len(batch.items)
                if label in stopped:
                    continue
                if facts.restarted and label not in ends:
                    notes.append("file replaced or truncated: read again from its start")
                if span.fault:
                    notes.append(span.fault)
                    behind.report.faults.append(span.fault)
                torn.setdefault(label, facts.torn)
                passed = taken
                if taken:
                    torn[label] = _torn(span.lines[taken - 1], batch.items[-1], source, again is not None)
                    passed -= bool(torn[label])  # it is counted, and read again from its start when it has grown
                end = ends[label] = span.lines[passed - 1].end if passed else ends.get(label, facts.offset)
                if waiting := taken < len(span.lines):
                    stopped.add(label)
                if span.last or waiting:
                    if facts.moved or end > facts.offset or torn[label] != facts.torn:
                        rest = WAITING if waiting else NOTHING
                        touched[label] = (file, end, facts, rest, torn[label], span.fault)
                elif taken:
                    touched[label] = (file, end, facts, UNREAD, torn[label], "")
                batches.append(batch)
                count, weight = count + taken, weight + batch.weight
                if count >= CHUNK_RECORDS or weight >= CHUNK_BYTES:
                    behind.take(batches, touched, notes)
                    batches, touched, notes = [], {}, []
                    count = weight = 0
            if touched or any(one.items for one in batches):
                behind.take(batches, touched, notes)
        if source.tail == "finished":
            behind.report.tell(known_faults(source, positions, ends))
        return behind.report

    def _mapped(self, source: Source, positions: dict[str, Any], again: Select | None) -> Iterator[tuple[Span, Batch]]:
        spans = _spans(source, positions)
        for span in islice(spans, None if self._workers < 2 or again else ALONE_SPANS):
            lines, closed = span.lines, span.facts.closed
            yield span, map_lines(lines, span.label, source, closed, self.context, self.normaliser, again)
        if (following := next(spans, None)) is not None:
            with workers(self._workers, self._mapper, source) as pool:
                yield from map_ahead(pool, self._workers, chain([following], spans))


class _Behind:
    """Takes the chunks of a source in, one after the other, each on a thread of its own while the next one is read.

    Left in whatever way, it waits for the chunk that is under way: its counts belong to the report.

    Args:
        positions: the resume points by file label, which move with each chunk; None leaves the stored ones and the
            watermark as they are.
    """

    def __init__(
        self,
        writer: ChunkWriter,
        source: str,
        positions: dict[str, Any] | None,
        watermark: datetime | None,
        progress: Progress | None,
    ) -> None:
        self.report = SourceReport(source)
        self._writer, self._positions, self._watermark, self._progress = writer, positions, watermark, progress
        self._thread = ThreadPoolExecutor(1, "intake")
        self._under_way: Future[Outcome] | None = None

    def __enter__(self) -> _Behind:
        return self

    def __exit__(self, *_: object) -> None:
        with self._thread:
            self._settle()

    def take(self, batches: Sequence[Batch], touched: Mapping[str, tuple[Any, ...]], notes: Sequence[str]) -> None:
        """Begin to take a chunk in, when the one before it is.

        Args:
            touched: what `resume_point` needs of each file that was read, by label.
        """
        self._settle()
        position = None
        if self._positions is not None:
            self._positions.update({label: resume_point(*point) for label, point in touched.items()})
            position = {"files": self._positions}
        taken = self._thread.submit(self._writer.take, self.report.source, batches, position, self._watermark, notes)
        self._under_way = taken

    def _settle(self) -> None:
        if self._under_way is None:
            return
        outcome, self._under_way = self._under_way.result(), None
        if self._positions is not None:
            self._watermark = outcome.watermark
        self.report.add(outcome.report)
        if self._progress is not None:
            self._progress(self.report)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for cycles seldom: records hold none, and looking through them costs a fifth of an import."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 200_000), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def known_faults(source: Source, positions: dict[str, Any], read: Container[str] = ()) -> list[str]:
    """Why files that are as they were, and so are not among those ``read`` now, could not be read to their end."""
    points = (positions.get(label) for label, _ in source.files if label not in read)
    return [point["fault"] for point in points if point and "fault" in point]


def _torn(line: Line, item: Mapped, source: Source, again: bool) -> str:
    """`torn_mark` of a last piece that was rejected because it has no end, but for the gateway's own log; else "".

    Args:
        again: what was read before may be skipped for that, the torn piece too.
    """
    if source.tail == "log" or item.rejected is None:
        return ""
    torn = line.oversize or item.rejected.reason == TORN or (again and item.rejected.outcome == "skipped")
    return torn_mark(line) if torn else ""


def _spans(source: Source, positions: dict[str, Any]) -> Iterator[Span]:
    """What is new in a source, in spans of bounded size; the last one of each file says so, and may be empty."""
    for label, file in source.files:
        facts = look(file, positions.get(label), source.tail)
        if facts is None:
            continue
        lines: list[Line] = []
        size, fault = 0, ""
        try:
            for line in new_lines(file, facts, closed=facts.closed):
                lines.append(line)
                size += len(line.raw)
                if len(lines) >= min(SPAN_RECORDS, CHUNK_RECORDS) or size >= SPAN_BYTES:
                    yield Span(label, file, facts, lines)
                    lines, size = [], 0
        except FileFault as ended:
            fault = str(ended)
        yield Span(label, file, facts, lines, last=True, fault=fault)
