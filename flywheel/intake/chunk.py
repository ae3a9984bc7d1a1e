"""One chunk of records: classified one after the other, as they stand in the log, then committed as a whole.

Taking records in order makes the tables independent of where chunks end: each record sees what came before it, stored
or in the same chunk.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from flywheel.intake import erased as erasing
from flywheel.intake.batch import Batch, Entry, Part, Rejected, call_rows, joined
from flywheel.intake.conversations import Rewrites, number_turns
from flywheel.intake.known import Known, Lookup, feedback_keys
from flywheel.intake.orphans import Target, Waiting, metadata_targets, resolved
from flywheel.intake.quarantine import quarantine_row
from flywheel.intake.records import Json
from flywheel.intake.report import SourceReport
from flywheel.intake.times import day_of, from_micros, micros
from flywheel.store.compaction import retire
from flywheel.store.erased import Erased
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.registry.erasures import record_names
from flywheel.store.segments import Segment, register, unregister, visible, write_segment

LATE = timedelta(hours=1)
"""A record this much older than the newest of its source is late."""

_LATE = LATE // timedelta(microseconds=1)

CLASH = "same id as another record, other content"
"""Reason of a record that is another one's namesake."""


Quarantine = Callable[[Sequence[Json]], Rewrites]
"""Given the rows of a chunk that end in quarantine, the segments of that table to hide and those in their place."""


@dataclass
class Outcome:
    """Rows to store, by table, and the counts of the chunk.

    Args:
        newest: the newest time that the source has shown so far, in microseconds since 1970.
    """

    report: SourceReport
    newest: int | None
    interactions: list[Json] = field(default_factory=list)
    feedback: list[Json] = field(default_factory=list)
    quarantine: list[Json] = field(default_factory=list)
    joined: int = 0
    orphans_changed: bool = False
    erased: dict[str, str] = field(default_factory=dict)  # keyed hashes of further ids that are gone: erasure id

    @property
    def watermark(self) -> datetime | None:
        """The newest time that the source has shown so far."""
        return None if self.newest is None else from_micros(self.newest)


class ChunkWriter:
    """Takes chunks of one task in.

    Args:
        run: name of the intake run, for the counts.
        now: when that run began.
    """

    def __init__(self, home: Home, registry: Registry, task: str, run: str, now: datetime) -> None:
        self.home, self.registry, self.task, self.run, self._now = home, registry, task, run, now
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
        self,
        source: str,
        batches: Sequence[Batch],
        position: Json | None,
        watermark: datetime | None,
        notes: Sequence[str] = (),
        quarantine: Quarantine | None = None,
    ) -> Outcome:
        """Classify and commit one chunk, with the source's new position; all of it becomes visible, or none.

        Args:
            position: None leaves the source's position and watermark as they are: its records are read once more.
            watermark: newest time that the source has shown so far.
            notes: remarks for the report that belong to no record.
            quarantine: what changes in the quarantine table when these rows end there; None adds them.
        """
        outcome = Outcome(SourceReport(source), None if watermark is None else micros(watermark))
        outcome.report.note(*notes)
        calls, entries = joined(batches)
        entries = [own for entry in entries if (own := self._welcome(entry, outcome)) is not None]
        known = self._known([part for entry in entries for part in entry.parts])
        stored = set(known.conversations)
        for entry in entries:
            self._classify(entry, known, outcome)
        outcome.report.check()
        rewrites = number_turns(self.home, self.registry, self.task, outcome.interactions, stored, self._lookup.holding)
        self._commit(outcome, calls, rewrites, position, quarantine)
        self.joined += outcome.joined
        return outcome

    def _welcome(self, entry: Entry, outcome: Outcome) -> Entry | None:
        """The entry without what belongs to an erased user, or None when nothing is left: then it counts as skipped.

        What else belongs to a dropped call is noted, so that later turns of its conversation, which repeat it, and
        what others say about it are dropped too; so is feedback in the same record, whatever it names as its target.
        """
        if not self._erased.anybody:
            return entry
        if (rejected := entry.item.rejected) is not None:
            text = entry.item.raw.decode("utf-8", "replace")
            if rejected.outcome != "quarantined" or not self._erased.mentioned(text):
                return entry
            outcome.report.count("skipped", erasing.BY_USER)
            return None
        left: list[Part] = []
        gone: list[str] = []
        call_gone = ""
        for part in entry.parts:
            why = erasing.reason(self._erased, part.rows)
            if why is None and call_gone and not part.call:
                why = erasing.ABOUT_USER, call_gone
            if why is None:
                left.append(part)
                continue
            gone.append(why[0])
            if part.call:
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
        conversations: set[str] = set()
        targets: set[Target] = set()
        feedback: set[Any] = set()
        for part in parts:
            own = part.rows[0]
            if part.call:
                ids.update([row["interaction_id"] for row in part.rows])
                conversations.add(own["conversation_id"])
            else:
                targets.add((own["target_kind"], own["target_id"]))
                feedback.update(feedback_keys(own))
        known = self._lookup.known(ids, conversations, targets, feedback)
        if feedback:
            for waiting in self.waiting:
                known.add_feedback(waiting)
        return known

    def _classify(self, entry: Entry, known: Known, outcome: Outcome) -> None:
        if entry.item.rejected is not None:
            self._reject(entry, entry.item.rejected, outcome)
            return
        new: list[Part] = []
        clash = False
        for part in entry.parts:
            end = self._call(part, known, outcome) if part.call else self._feedback(part.rows[0], known, outcome)
            if end == "new":
                new.append(part)
            clash |= end == "clash"
        if new:
            self._count_kept(entry, new, outcome)
            dropped = [*entry.item.dropped, *[CLASH] * clash]
            outcome.report.note(*(f"part dropped: {reason}" for reason in dropped))
        elif clash:
            self._reject(entry, Rejected("quarantined", CLASH), outcome)
        else:
            outcome.report.count("duplicate")

    def _reject(self, entry: Entry, rejected: Rejected, outcome: Outcome) -> None:
        outcome.report.count(rejected.outcome, rejected.reason)
        if rejected.outcome == "quarantined":
            item = entry.item
            row = quarantine_row(item.file, item.offset, item.raw, rejected.reason, self._now)
            outcome.quarantine.append(row)

    def _call(self, part: Part, known: Known, outcome: Outcome) -> str:
        """Take a call in if it is ``new``; else it is ``known``, or a ``clash``: a known id with other content."""
        rows = part.rows
        hashes = {own["interaction_id"]: own["content_hash"] for own in rows}
        if not known.interactions.keys().isdisjoint(hashes):
            return "known" if part.secondhand or hashes.items() <= known.interactions.items() else "clash"
        known.add_interaction(rows)
        outcome.interactions.extend(rows)
        if self.waiting:
            first = rows[0]
            targets: list[Target] = [("interaction", own) for own in hashes]
            targets += [("conversation", first["conversation_id"]), *metadata_targets(json.loads(first["metadata"]))]
            found = self.waiting.take(targets, first["interaction_id"])
            outcome.feedback.extend(found)
            outcome.joined += len(found)
            outcome.orphans_changed |= bool(found)
        return "new"

    def _feedback(self, own: Json, known: Known, outcome: Outcome) -> str:
        """Take a piece of feedback in if it is ``new``; else it is ``known``."""
        if any(key in known.feedback for key in feedback_keys(own)):
            return "known"
        known.add_feedback(own)
        target = known.find((own["target_kind"], own["target_id"]))
        if target is None:
            self.waiting.add(own)
            outcome.orphans_changed = True
        else:
            outcome.feedback.append(resolved(own, target))
        return "new"

    def _count_kept(self, entry: Entry, new: Sequence[Part], outcome: Outcome) -> None:
        """Count a record once; of several times in it the newest says whether it is late."""
        report = outcome.report
        report.count("kept")
        if entry.item.notes:
            report.note(*(f"repaired: {note}" for note in entry.item.notes))
        times: list[int] = []
        strange: set[str] = set()
        for part in new:
            if part.quality == "ok":
                times.append(part.ts)
            else:
                strange.add(f"time {part.quality}")
            strange.update(part.notes)
        if strange:
            report.note(*sorted(strange))
        if not times:
            return
        ts, newest = max(times), outcome.newest
        if newest is None or ts > newest:
            outcome.newest = ts
        elif ts < newest - _LATE:
            report.late += 1

    def _commit(
        self,
        outcome: Outcome,
        calls: pa.Table,
        rewrites: Rewrites,
        position: Json | None,
        quarantine: Quarantine | None,
    ) -> None:
        written, hidden = [*rewrites.written], [*rewrites.hidden]
        for key, own in _by_day(outcome.interactions, lambda row: day_of(row["ts"])):
            written.append(write_segment(self.home, "interactions", self.task, key, call_rows(calls, own)))
        written += self._write("feedback", outcome.feedback)
        if quarantine is None:
            written += self._write("quarantine", outcome.quarantine)
        else:
            changed = quarantine(outcome.quarantine)
            written += changed.written
            hidden += changed.hidden
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
        days = _by_day(rows, lambda row: day_of(micros(row["ts"])))
        return [write_segment(self.home, table, self.task, key, own) for key, own in days]


def _by_day(rows: Sequence[Json], day: Callable[[Json], str]) -> list[tuple[str, list[Json]]]:
    found: dict[str, list[Json]] = defaultdict(list)
    for row in rows:
        found[day(row)].append(row)
    return sorted(found.items())


def _store_position(tx: Transaction, task: str, source: str, position: Json | None, watermark: datetime | None) -> None:
    if position is None:
        return
    table = schema.sources
    mine = sa.and_(table.c.task == task, table.c.source == source)
    values = {
        "position": json.loads(json.dumps(position)),
        "watermark": watermark.isoformat(timespec="microseconds") if watermark else "",
        **tx.stamp(),
    }
    if not tx.execute(sa.update(table).where(mine).values(**values)):
        tx.execute(sa.insert(table).values(task=task, source=source, **values))
