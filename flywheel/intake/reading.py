"""Reading a source from its resume points to its end: lines to items, items to chunks of bounded size."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.intake.chunk import ChunkWriter, Item, Rejected
from flywheel.intake.decode import decode
from flywheel.intake.detect import detect
from flywheel.intake.formats import named
from flywheel.intake.normalise import Normaliser
from flywheel.intake.quarantine import MAX_RAW
from flywheel.intake.reader import Line, read_lines
from flywheel.intake.records import BadRecord, Context, SkippedRecord
from flywheel.intake.report import SourceReport
from flywheel.intake.sources import OpenFile, Source, look, resume_point
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

CHUNK_RECORDS = 5_000
CHUNK_BYTES = 16 * 2**20

Progress = Callable[[SourceReport], None]


class Reading:
    """Reads sources of one task in one run."""

    def __init__(
        self, config: Config, home: Home, registry: Registry, task: str, run: str, progress: Progress | None = None
    ) -> None:
        share = config.task(task).labels.audit_share
        self.writer = ChunkWriter(home, registry, Normaliser(home, task, share, datetime.now(UTC)), run)
        self._context = Context(task, frozenset(config.tasks))
        self._registry, self._task, self._progress = registry, task, progress

    def position(self, source: Source) -> tuple[dict[str, Any], datetime | None]:
        """The stored resume points by file label, and the watermark."""
        table = schema.sources
        with self._registry.read() as tx:
            row = tx.row(sa.select(table).where(table.c.task == self._task, table.c.source == source.name))
        if row is None:
            return {}, None
        mark = row["watermark"]
        return dict(row["position"]["files"]), datetime.fromisoformat(mark) if mark else None

    def read(self, source: Source) -> SourceReport:
        """Read a source to its end, committing chunk by chunk."""
        report = SourceReport(source.name)
        positions, watermark = self.position(source)
        items: list[Item] = []
        notes: list[str] = []
        size = 0
        touched: dict[str, tuple[Path, int, OpenFile]] = {}

        def flush() -> None:
            nonlocal watermark, size
            points = {label: resume_point(*point) for label, point in touched.items()}
            positions.update(points)
            outcome = self.writer.take(source.name, items, {"files": positions}, watermark, notes)
            watermark = outcome.watermark
            report.add(outcome.report)
            items.clear()
            notes.clear()
            touched.clear()
            size = 0
            if self._progress is not None:
                self._progress(report)

        for label, path in source.files:
            facts = look(path, positions.get(label), source.tail)
            if facts is None:
                continue
            if facts.restarted:
                notes.append("file replaced or truncated: read again from its start")
            for line in read_lines(path, facts.offset):
                item = self._item(source, label, line, facts)
                if item is None:
                    break
                items.append(item)
                # What a chat export unfolds into grows with its turns: each repeats what came before it.
                size += (line.end - line.offset) * (1 if isinstance(item.found, Rejected) else len(item.found))
                touched[label] = (path, line.end, facts)
                if len(items) >= CHUNK_RECORDS or size >= CHUNK_BYTES:
                    flush()
        if items:
            flush()
        return report

    def _item(self, source: Source, label: str, line: Line, facts: OpenFile) -> Item | None:
        """What a line is, or None when it is an unterminated last line that may yet go on."""

        def rejected(outcome: str, reason: str) -> Item:
            return Item(label, line.offset, line.raw[:MAX_RAW], Rejected(outcome, reason))

        whole = line.terminated
        if not whole and not facts.closed and (source.tail == "log" or line.oversize):
            return None
        if line.oversize:
            return rejected("quarantined", "line too long")
        if not whole and source.tail == "log":
            return rejected("quarantined", "torn last line")
        try:
            record, repairs = decode(line.raw)
        except (BadRecord, SkippedRecord) as error:
            if not whole and not facts.closed:
                return None
            skipped = isinstance(error, SkippedRecord)
            return rejected(
                "skipped" if skipped else "quarantined", str(error) if whole or skipped else "torn last line"
            )
        try:
            fmt = detect(record) if source.fmt == "auto" else named(source.fmt)
            found = fmt.records(record, self._context)
        except BadRecord as error:
            return rejected("quarantined", str(error))
        except SkippedRecord as error:
            return rejected("skipped", str(error))
        return Item(label, line.offset, line.raw[:MAX_RAW], found, frozenset(repairs))
