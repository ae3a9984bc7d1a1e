"""Reading quarantined records once more, after a format was mended or named: what can be read now leaves quarantine.

A replayed record is read and counted once more, under the replay's own run. So the counts of every run add up, and over
all runs what lies in quarantine is what was ever quarantined less what was ever replayed (and less what an erasure
took): a record that fails again is counted as quarantined once more, and stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import pyarrow.parquet as pq

from flywheel.config import Config
from flywheel.config_logs import ColumnMap
from flywheel.config_values import is_url
from flywheel.errors import IntakeError
from flywheel.intake.batch import Item, Rejected, make_batch
from flywheel.intake.containers import container_of, read_records
from flywheel.intake.conversations import Rewrites
from flywheel.intake.detect import UNKNOWN
from flywheel.intake.formats import load_formats
from flywheel.intake.mapping import item_of
from flywheel.intake.places import Readable
from flywheel.intake.quarantine import Place, entries, file_path, places, sources_of, storable
from flywheel.intake.reader import FileFault, Line
from flywheel.intake.reading import CHUNK_BYTES, CHUNK_RECORDS, Progress, Reading
from flywheel.intake.records import Json
from flywheel.intake.report import SourceReport
from flywheel.intake.run import check_format, tidy, turn
from flywheel.intake.sources import GATEWAY, Source, task_sources
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import visible, write_segment

RUN = "replay"
"""Every replay's run begins with this word, so that the counts of replays are told from others."""

GONE = "its file is gone, or cannot be read"
CHANGED = "its file has changed there"

_CUT = "\N{REPLACEMENT CHARACTER}"


@dataclass
class ReplayReport:
    """What became of the replayed records.

    Args:
        sources: counts per source.
        left: records that could not be read again: source (their file), source_offset, reason and ``why``.
    """

    sources: list[SourceReport] = field(default_factory=list)
    left: list[Json] = field(default_factory=list)

    def why_left(self) -> dict[str, int]:
        """How many records could not be read again, by reason."""
        return dict(Counter(row["why"] for row in self.left))


def replay(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    *,
    source: str | None = None,
    reason: str | None = None,
    fmt: str | None = None,
    columns: ColumnMap | None = None,
    run: str = RUN,
    progress: Progress | None = None,
    waits: Callable[[], None] | None = None,
) -> ReplayReport:
    """Read quarantined records again at their places, and take in those that can be read now.

    What fails again stays, under its reason of today; what cannot be found again stays as it is. Rows, counts and the
    change in quarantine become visible together, so that it is safe to kill at any instant and to run again.

    Args:
        source: only records of this source, or of this file.
        reason: only records that are there for this reason.
        fmt: a format's name, or ``auto``, in place of what flywheel.yaml says of their source; what a named format
            would skip stays in quarantine.
        columns: which column holds what, also in place of that.
        waits: called when another process takes records in, which this one then waits for.

    Raises:
        IntakeError: the format's name is unknown.
    """
    load_formats(config.formats)
    if fmt is not None:
        check_format(fmt, columns)
    with turn(home, task, waits):
        reader = Reading(config, home, registry, task, run, progress)
        known = {source.name: source for source in task_sources(config, home, task)}
        source_of = sources_of(registry, task)
        by_source: dict[str, list[Place]] = {}
        for place in places(home, registry, task, source=source, reason=reason):
            by_source.setdefault(source_of(place[0]), []).append(place)
        report = ReplayReport()
        for name, found in sorted(by_source.items()):
            told = _Replay(reader, _origin(name, known), fmt, columns, progress)
            told.take(_rows(home, registry, task, found, reason))
            report.sources.append(told.report)
            report.left += told.left
        if any(told.read for told in report.sources):
            tidy(home, registry, task)
        return report


def _origin(name: str, known: Mapping[str, Source]) -> Source:
    """How records of a source are read: as flywheel.yaml says of it, or of the place that it lies in."""
    if name in known:
        return known[name]
    for entry in known.values():
        if entry.name != GATEWAY and not is_url(entry.name) and any(label == name for label, _ in entry.files):
            return replace(entry, name=name)
    return Source(name, "auto", [], "log" if name == GATEWAY else "finished")


class _Replay:
    """Replays the records of one source, chunk by chunk."""

    def __init__(
        self, reader: Reading, source: Source, fmt: str | None, columns: ColumnMap | None, progress: Progress | None
    ) -> None:
        self.reader, self.progress = reader, progress
        self.source = source
        if columns is not None:
            self.source = replace(source, fmt="columns", columns=columns)
        elif fmt is not None:
            self.source = replace(source, fmt=fmt, columns=None)
        self.named = self.source is not source and self.source.fmt != "auto"
        self.report, self.left = SourceReport(source.name), list[Json]()
        self._batch: list[tuple[Json, Item]] = []

    def take(self, rows: Iterator[Json]) -> None:
        """Replay quarantined records, given in the order of their places."""
        size = 0
        for row, line in _lines(self.reader.writer.home, self.source, rows):
            item = (
                line if isinstance(line, str) else item_of(line, row["source"], self.source, True, self.reader.context)
            )
            if not isinstance(line, Line) or not isinstance(item, Item):
                why = line if isinstance(line, str) else CHANGED
                self.left.append({name: row[name] for name in ("source", "source_offset", "reason")} | {"why": why})
                continue
            if self.named and isinstance(item.found, Rejected) and item.found.outcome == "skipped":
                # A format that has no use for a record says little when it was tried: it may be the wrong one.
                item = replace(item, found=Rejected("quarantined", row["reason"]))
            if item.found == Rejected("quarantined", UNKNOWN):
                # It may have been imported under a format or columns that are not known now: its reason says more.
                item = replace(item, found=Rejected("quarantined", row["reason"]))
            self._batch.append((row, item))
            size += line.end - line.offset
            if len(self._batch) >= CHUNK_RECORDS or size >= CHUNK_BYTES:
                self._flush()
                size = 0
        if self._batch:
            self._flush()

    def _flush(self) -> None:
        writer = self.reader.writer
        _, watermark = self.reader.position(self.source)
        batch = make_batch([item for _, item in self._batch], self.reader.normaliser)
        change = _Change(writer.home, writer.registry, writer.task, [row for row, _ in self._batch])
        outcome = writer.take(self.source.name, [batch], None, watermark, quarantine=change)
        self.report.add(outcome.report)
        self._batch.clear()
        if self.progress is not None:
            self.progress(self.report)


def _rows(home: Home, registry: Registry, task: str, found: Sequence[Place], reason: str | None) -> Iterator[Json]:
    for start in range(0, len(found), CHUNK_RECORDS):
        yield from entries(home, registry, task, found[start : start + CHUNK_RECORDS], reason=reason)


def _lines(home: Home, source: Source, rows: Iterator[Json]) -> Iterator[tuple[Json, Line | str]]:
    """Each quarantined record with its line of today, or the reason why that cannot be found."""
    listed: dict[str, Readable] | None = None
    for file, own in groupby(rows, key=lambda row: str(row["source"])):
        place: Readable | None = file_path(home, file)
        if source.name != GATEWAY and not file_path(home, file).exists():
            listed = dict(source.files) if listed is None else listed
            place = listed.get(file)
        yield from _lines_of(place, own)


def _lines_of(file: Readable | None, rows: Iterator[Json]) -> Iterator[tuple[Json, Line | str]]:
    lines: Iterator[Line] = iter(())
    line: Line | None = None
    try:
        container = None if file is None else container_of(file)
    except (IntakeError, OSError):
        container = None
    for row in rows:
        offset = row["source_offset"]
        if file is None or container is None:
            yield row, GONE
            continue
        try:
            if line is None or line.offset != offset:  # else a second row of the same record
                if container.addressable or line is None:
                    lines = read_records(file, container, offset if container.addressable else 0)
                line = next((found for found in lines if found.offset >= offset), None)
        except (FileFault, IntakeError, OSError):
            line = None
        yield row, line if line is not None and line.offset == offset and _same(row, line) else CHANGED


def _same(row: Json, line: Line) -> bool:
    """Whether a line begins as the quarantined record did; one that was torn may have been finished since."""
    found = storable(line.raw)
    return found == row["raw"] or (row["reason"] == "torn last line" and found.startswith(row["raw"].rstrip(_CUT)))


@dataclass(frozen=True)
class _Change:
    """The quarantine table after a batch: without the records that were taken in, the others under their new reason."""

    home: Home
    registry: Registry
    task: str
    batch: Sequence[Json]

    def __call__(self, again: Sequence[Json]) -> Rewrites:
        reasons: dict[Place, str] = {(row["source"], row["source_offset"]): row["reason"] for row in again}
        read = {(row["source"], row["source_offset"], row["raw"]) for row in self.batch}
        offsets = {row["source_offset"] for row in self.batch}
        change = Rewrites()
        with self.registry.read() as tx:
            segments = visible(tx, "quarantine", self.task)
        for segment in segments:
            with pq.ParquetFile(self.home.data / segment["path"]) as file:
                if offsets.isdisjoint(file.read(columns=["source_offset"]).column(0).to_pylist()):
                    continue
                rows: list[Json] = file.read().to_pylist()
            after = []
            for row in rows:
                place = row["source"], row["source_offset"]
                if (*place, row["raw"]) not in read:
                    after.append(row)
                elif place in reasons:
                    after.append({**row, "reason": reasons[place]})
            if after != rows:
                change.hidden.append(segment["path"])
                if after:
                    change.written.append(write_segment(self.home, "quarantine", self.task, segment["day"], after))
        return change
