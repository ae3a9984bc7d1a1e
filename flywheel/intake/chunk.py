"""One chunk of records: classified one after the other, as they stand in the log, then committed as a whole.

Taking records in order makes the tables independent of where chunks end: each record sees what came before it, stored
or in the same chunk.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from flywheel.intake.conversations import Rewrites, number_turns
from flywheel.intake.known import Known, Lookup, feedback_keys
from flywheel.intake.normalise import Normaliser, day
from flywheel.intake.orphans import Target, Waiting, metadata_targets, resolved
from flywheel.intake.quarantine import quarantine_row
from flywheel.intake.records import FeedbackRecord, InteractionRecord, Json
from flywheel.intake.report import SourceReport
from flywheel.store.compaction import retire
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.segments import Segment, register, unregister, visible, write_segment

LATE = timedelta(hours=1)
"""A record this much older than the newest of its source is late."""


@dataclass(frozen=True)
class Rejected:
    """A record that ended before it was understood: ``quarantined`` or ``skipped``, and why."""

    outcome: str
    reason: str


@dataclass(frozen=True)
class Item:
    """A line of a file and what was made of it.

    Args:
        raw: the first bytes of the line, for quarantine.
        notes: repairs that were made.
    """

    file: str
    offset: int
    raw: bytes
    found: InteractionRecord | FeedbackRecord | Rejected
    notes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Row:
    """An item as rows of its table: several for several choices, none when it was rejected."""

    item: Item
    rows: list[Json]
    quality: str = ""


@dataclass
class Outcome:
    """Rows to store, by table, and the counts of the chunk."""

    report: SourceReport
    watermark: datetime | None
    interactions: list[Json] = field(default_factory=list)
    feedback: list[Json] = field(default_factory=list)
    quarantine: list[Json] = field(default_factory=list)
    joined: int = 0
    orphans_changed: bool = False


class ChunkWriter:
    """Takes chunks of one task in.

    Args:
        run: name of the intake run, for the counts.
    """

    def __init__(self, home: Home, registry: Registry, normaliser: Normaliser, run: str) -> None:
        self.home, self.registry, self.run = home, registry, run
        self.task = normaliser.task
        self._normaliser = normaliser
        self._lookup = Lookup(home, registry, self.task)
        self._waiting: Waiting | None = None
        self.joined = 0

    @property
    def waiting(self) -> Waiting:
        """Feedback that waits, read from the store at first use."""
        if self._waiting is None:
            self._waiting = Waiting(self._lookup.orphans())
        return self._waiting

    def take(
        self, source: str, items: Sequence[Item], position: Json, watermark: datetime | None, notes: Sequence[str] = ()
    ) -> Outcome:
        """Classify and commit one chunk, with the source's new position; all of it becomes visible, or none.

        Args:
            watermark: newest time that the source has shown so far.
            notes: remarks for the report that belong to no record.
        """
        outcome = Outcome(SourceReport(source), watermark)
        outcome.report.note(*notes)
        rows = [self._row(item) for item in items]
        known = self._known(rows)
        stored = set(known.conversations)
        for row in rows:
            self._classify(row, known, outcome)
        outcome.report.check()
        rewrites = number_turns(self.home, self.registry, self.task, outcome.interactions, stored)
        self._commit(outcome, rewrites, position)
        self.joined += outcome.joined
        return outcome

    def _row(self, item: Item) -> Row:
        if isinstance(item.found, InteractionRecord):
            rows = self._normaliser.interaction(item.found, item.file, item.offset)
            return Row(item, rows, rows[0]["ts_quality"])
        if isinstance(item.found, FeedbackRecord):
            row, quality = self._normaliser.feedback(item.found, item.file, item.offset)
            return Row(item, [row], quality)
        return Row(item, [])

    def _known(self, rows: Sequence[Row]) -> Known:
        """What is stored of that which the chunk mentions."""
        ids: set[str] = set()
        targets: set[Target] = set()
        feedback: set[Any] = set()
        for row in rows:
            if isinstance(row.item.found, InteractionRecord):
                ids.update(own["interaction_id"] for own in row.rows)
                targets.add(("conversation", row.rows[0]["conversation_id"]))
            elif isinstance(row.item.found, FeedbackRecord):
                targets.add((row.item.found.target_kind, row.item.found.target))
                feedback.update(feedback_keys(row.rows[0]))
        known = self._lookup.known(ids, targets, feedback)
        if feedback:
            for waiting in self.waiting:
                known.add_feedback(waiting)
        return known

    def _classify(self, row: Row, known: Known, outcome: Outcome) -> None:
        if isinstance(row.item.found, Rejected):
            self._reject(row.item, row.item.found, outcome)
        elif isinstance(row.item.found, InteractionRecord):
            self._interaction(row, row.item.found, known, outcome)
        else:
            self._feedback(row, known, outcome)

    def _reject(self, item: Item, rejected: Rejected, outcome: Outcome) -> None:
        outcome.report.count(rejected.outcome, rejected.reason)
        if rejected.outcome == "quarantined":
            row = quarantine_row(item.file, item.offset, item.raw, rejected.reason, self._normaliser.now)
            outcome.quarantine.append(row)

    def _interaction(self, row: Row, record: InteractionRecord, known: Known, outcome: Outcome) -> None:
        hashes = {own["interaction_id"]: own["content_hash"] for own in row.rows}
        if hashes.items() <= known.interactions.items():
            outcome.report.count("duplicate")
            return
        if not hashes.keys().isdisjoint(known.interactions):
            self._reject(row.item, Rejected("quarantined", "same id as another record, other content"), outcome)
            return
        known.add_interaction(row.rows, record.metadata)
        outcome.interactions.extend(row.rows)
        self._count_kept(row, outcome)
        first = row.rows[0]["interaction_id"]
        targets: list[Target] = [("interaction", own) for own in hashes]
        targets += [("conversation", row.rows[0]["conversation_id"]), *metadata_targets(record.metadata)]
        joined = self.waiting.take(targets, first)
        outcome.feedback.extend(joined)
        outcome.joined += len(joined)
        outcome.orphans_changed |= bool(joined)

    def _feedback(self, row: Row, known: Known, outcome: Outcome) -> None:
        own = row.rows[0]
        if not known.feedback.isdisjoint(feedback_keys(own)):
            outcome.report.count("duplicate")
            return
        known.add_feedback(own)
        self._count_kept(row, outcome)
        target = known.find((own["target_kind"], own["target_id"]))
        if target is None:
            self.waiting.add(own)
            outcome.orphans_changed = True
        else:
            outcome.feedback.append(resolved(own, target))

    def _count_kept(self, row: Row, outcome: Outcome) -> None:
        outcome.report.count("kept", *(f"repaired: {note}" for note in row.item.notes))
        if row.quality != "ok":
            outcome.report.note(f"time {row.quality}")
            return
        ts = row.rows[0]["ts"]
        if outcome.watermark is not None and ts < outcome.watermark - LATE:
            outcome.report.late += 1
        outcome.watermark = max(outcome.watermark or ts, ts)

    def _commit(self, outcome: Outcome, rewrites: Rewrites, position: Json) -> None:
        written = [*rewrites.written]
        for table in ("interactions", "feedback", "quarantine"):
            written += self._write(table, getattr(outcome, table))
        hidden = [*rewrites.hidden]
        if outcome.orphans_changed:
            with self.registry.read() as tx:
                hidden += [segment["path"] for segment in visible(tx, "orphans", self.task)]
            written += self._write("orphans", list(self.waiting))
        with self.registry.write() as tx:
            unregister(tx, hidden)
            register(tx, written)
            _store_position(tx, self.task, outcome.report.source, position, outcome.watermark)
            counts = {"run": self.run, "task": self.task, "source": outcome.report.source}
            tx.execute(sa.insert(schema.intake_counts).values(**counts, **outcome.report.counts(), **tx.stamp()))
        retire(self.home, hidden)

    def _write(self, table: str, rows: Sequence[Json]) -> list[Segment]:
        by_day: dict[str, list[Json]] = defaultdict(list)
        for row in rows:
            by_day[day(row)].append(row)
        return [write_segment(self.home, table, self.task, key, part) for key, part in sorted(by_day.items())]


def _store_position(tx: Transaction, task: str, source: str, position: Json, watermark: datetime | None) -> None:
    table = schema.sources
    mine = sa.and_(table.c.task == task, table.c.source == source)
    values = {
        "position": json.loads(json.dumps(position)),
        "watermark": watermark.isoformat(timespec="microseconds") if watermark else "",
        **tx.stamp(),
    }
    if not tx.execute(sa.update(table).where(mine).values(**values)):
        tx.execute(sa.insert(table).values(task=task, source=source, **values))
