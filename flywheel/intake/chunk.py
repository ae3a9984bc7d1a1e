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

from flywheel.intake import erased as erasing
from flywheel.intake.conversations import Rewrites, number_turns
from flywheel.intake.known import Known, Lookup, feedback_keys
from flywheel.intake.normalise import Normaliser, day
from flywheel.intake.orphans import Target, Waiting, metadata_targets, resolved
from flywheel.intake.quarantine import quarantine_row
from flywheel.intake.records import Dropped, FeedbackRecord, InteractionRecord, Json, Record
from flywheel.intake.report import SourceReport
from flywheel.store.compaction import retire
from flywheel.store.erased import Erased
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.registry.erasures import record_names
from flywheel.store.segments import Segment, register, unregister, visible, write_segment

LATE = timedelta(hours=1)
"""A record this much older than the newest of its source is late."""

_CLASH = "same id as another record, other content"


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
    found: Sequence[Record | Dropped] | Rejected
    notes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Part:
    """One record of an item as rows of its table: several for several choices."""

    record: Record
    rows: list[Json]
    quality: str


@dataclass(frozen=True)
class Entry:
    """An item with its parts; none when it was rejected."""

    item: Item
    parts: list[Part]


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
    erased: dict[str, str] = field(default_factory=dict)  # keyed hashes of further ids that are gone: erasure id


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
        with registry.read() as tx:
            self._erased = Erased(home, tx, self.task)
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
        entries = [entry for item in items if (entry := self._welcome(self._entry(item), outcome)) is not None]
        known = self._known([part for entry in entries for part in entry.parts])
        stored = set(known.conversations)
        for entry in entries:
            self._classify(entry, known, outcome)
        outcome.report.check()
        rewrites = number_turns(self.home, self.registry, self.task, outcome.interactions, stored)
        self._commit(outcome, rewrites, position)
        self.joined += outcome.joined
        return outcome

    def _entry(self, item: Item) -> Entry:
        found = () if isinstance(item.found, Rejected) else item.found
        return Entry(item, [self._part(item, one) for one in found if not isinstance(one, Dropped)])

    def _part(self, item: Item, record: Record) -> Part:
        if isinstance(record, InteractionRecord):
            rows = self._normaliser.interaction(record, item.file, item.offset)
            return Part(record, rows, rows[0]["ts_quality"])
        row, quality = self._normaliser.feedback(record, item.file, item.offset)
        return Part(record, [row], quality)

    def _welcome(self, entry: Entry, outcome: Outcome) -> Entry | None:
        """The entry without what belongs to an erased user, or None when nothing is left: then it counts as skipped.

        What else belongs to a dropped call is noted, so that later turns of its conversation, which repeat it, and
        what others say about it are dropped too; so is feedback in the same record, whatever it names as its target.
        """
        if not self._erased.anybody:
            return entry
        found = entry.item.found
        if isinstance(found, Rejected):
            text = entry.item.raw.decode("utf-8", "replace")
            if found.outcome != "quarantined" or not self._erased.mentioned(text):
                return entry
            outcome.report.count("skipped", erasing.BY_USER)
            return None
        left: list[Part] = []
        gone: list[str] = []
        call_gone = ""
        for part in entry.parts:
            why = erasing.reason(self._erased, part.rows)
            if why is None and call_gone and isinstance(part.record, FeedbackRecord):
                why = erasing.ABOUT_USER, call_gone
            if why is None:
                left.append(part)
                continue
            gone.append(why[0])
            if isinstance(part.record, InteractionRecord):
                call_gone = why[1]
            names = erasing.names(self._erased, part.rows, why[1])
            outcome.erased |= names
            self._erased.add(names)
        if left:
            outcome.report.note(*(f"part dropped: {rule}" for rule in sorted(set(gone))))
            return Entry(entry.item, left)
        outcome.report.count("skipped", gone[0])
        return None

    def _known(self, parts: Sequence[Part]) -> Known:
        """What is stored of that which the chunk mentions."""
        ids: set[str] = set()
        targets: set[Target] = set()
        feedback: set[Any] = set()
        for part in parts:
            if isinstance(part.record, InteractionRecord):
                ids.update(own["interaction_id"] for own in part.rows)
                targets.add(("conversation", part.rows[0]["conversation_id"]))
            else:
                targets.add((part.record.target_kind, part.record.target))
                feedback.update(feedback_keys(part.rows[0]))
        known = self._lookup.known(ids, targets, feedback)
        if feedback:
            for waiting in self.waiting:
                known.add_feedback(waiting)
        return known

    def _classify(self, entry: Entry, known: Known, outcome: Outcome) -> None:
        if isinstance(entry.item.found, Rejected):
            self._reject(entry.item, entry.item.found, outcome)
            return
        ends = [(part, self._take(part, known, outcome)) for part in entry.parts]
        clash = any(end == "clash" for _, end in ends)
        if new := [part for part, end in ends if end == "new"]:
            self._count_kept(entry.item, new, outcome)
            dropped = [one.reason for one in entry.item.found if isinstance(one, Dropped)] + [_CLASH] * clash
            outcome.report.note(*(f"part dropped: {reason}" for reason in dropped))
        elif clash:
            self._reject(entry.item, Rejected("quarantined", _CLASH), outcome)
        else:
            outcome.report.count("duplicate")

    def _take(self, part: Part, known: Known, outcome: Outcome) -> str:
        """Take a part in if it is ``new``; else it is ``known``, or a ``clash``: a known id with other content."""
        if isinstance(part.record, InteractionRecord):
            return self._interaction(part.rows, part.record, known, outcome)
        return self._feedback(part.rows[0], known, outcome)

    def _reject(self, item: Item, rejected: Rejected, outcome: Outcome) -> None:
        outcome.report.count(rejected.outcome, rejected.reason)
        if rejected.outcome == "quarantined":
            row = quarantine_row(item.file, item.offset, item.raw, rejected.reason, self._normaliser.now)
            outcome.quarantine.append(row)

    def _interaction(self, rows: list[Json], record: InteractionRecord, known: Known, outcome: Outcome) -> str:
        hashes = {own["interaction_id"]: own["content_hash"] for own in rows}
        if hashes.items() <= known.interactions.items():
            return "known"
        if not hashes.keys().isdisjoint(known.interactions):
            return "clash"
        known.add_interaction(rows, record.metadata)
        outcome.interactions.extend(rows)
        targets: list[Target] = [("interaction", own) for own in hashes]
        targets += [("conversation", rows[0]["conversation_id"]), *metadata_targets(record.metadata)]
        joined = self.waiting.take(targets, rows[0]["interaction_id"])
        outcome.feedback.extend(joined)
        outcome.joined += len(joined)
        outcome.orphans_changed |= bool(joined)
        return "new"

    def _feedback(self, own: Json, known: Known, outcome: Outcome) -> str:
        if not known.feedback.isdisjoint(feedback_keys(own)):
            return "known"
        known.add_feedback(own)
        target = known.find((own["target_kind"], own["target_id"]))
        if target is None:
            self.waiting.add(own)
            outcome.orphans_changed = True
        else:
            outcome.feedback.append(resolved(own, target))
        return "new"

    def _count_kept(self, item: Item, new: Sequence[Part], outcome: Outcome) -> None:
        """Count a record once; of several times in it the newest says whether it is late."""
        outcome.report.count("kept", *(f"repaired: {note}" for note in item.notes))
        outcome.report.note(*(f"time {quality}" for quality in sorted({part.quality for part in new} - {"ok"})))
        times = [part.rows[0]["ts"] for part in new if part.quality == "ok"]
        if not times:
            return
        ts = max(times)
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
            record_names(tx, self.task, outcome.erased)
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
