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
from typing import Any, TypeVar

import sqlalchemy as sa

from flywheel.intake import erased as erasing
from flywheel.intake.batch import Batch, Call, Calls, Entry, Feedback, Rejected, joined
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

T = TypeVar("T")

LATE = timedelta(hours=1) // timedelta(microseconds=1)
"""A record this many microseconds older than the newest of its source is late."""

CLASH = "same id as another record, other content"
"""Reason of a record that is another one's namesake."""


Quarantine = Callable[[Sequence[Json]], Rewrites]
"""Given the rows of a chunk that end in quarantine, the segments of that table to hide and those in their place."""


@dataclass
class Outcome:
    """Rows to store, by table, and the counts of the chunk.

    Args:
        newest: the newest time that the source has shown so far, in microseconds since 1970.
        calls: places of the new calls' rows among the chunk's.
    """

    report: SourceReport
    newest: int | None
    calls: list[int] = field(default_factory=list)
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
        if self._erased.anybody:
            entries = [own for entry in entries if (own := self._welcome(entry, calls, outcome)) is not None]
        known = self._known(calls, entries)
        stored = set(known.conversations)
        for entry in entries:
            self._classify(entry, calls, known, outcome)
        outcome.report.check()
        holding = self._lookup.holding
        rewrites = number_turns(self.home, self.registry, self.task, calls, outcome.calls, stored, holding)
        self._commit(outcome, calls, rewrites, position, quarantine)
        self.joined += outcome.joined
        return outcome

    def _welcome(self, entry: Entry, calls: Calls, outcome: Outcome) -> Entry | None:
        """The entry without what belongs to an erased user, or None when nothing is left: then it counts as skipped.

        What else belongs to a dropped call is noted, so that later turns of its conversation, which repeat it, and
        what others say about it are dropped too; so is feedback in the same record, whatever it names as its target.
        """
        item, place = entry.item, entry.place
        if item.rejected is not None:
            text = entry.raw.decode("utf-8", "replace")
            if item.rejected.outcome != "quarantined" or not self._erased.mentioned(text):
                return entry
            outcome.report.count("skipped", erasing.BY_USER)
            return None
        parts: list[Call | Feedback] = []
        left = False
        gone: list[str] = []
        call_gone = ""
        for part in item.parts:
            call = isinstance(part, Call)
            why = erasing.reason(self._erased, calls.named(place) if isinstance(part, Call) else part.row)
            if why is None and call_gone and not call:
                why = erasing.ABOUT_USER, call_gone
            if isinstance(part, Call):
                if why is not None:
                    rows = [calls.named(own) for own in range(place, place + part.choices)]
                    names = erasing.names(self._erased, rows, why[1])
                    outcome.erased |= names
                    self._erased.add(names)
                    call_gone = why[1]
                place += part.choices
                parts.append(part if why is None else part._replace(dropped=True))
            elif why is None:
                parts.append(part)
            if why is None:
                left = True
            else:
                gone.append(why[0])
        if left:
            outcome.report.note(*(f"part dropped: {rule}" for rule in sorted(set(gone))))
            return entry._replace(item=item._replace(parts=(*parts,)))
        outcome.report.count("skipped", gone[0])
        return None

    def _known(self, calls: Calls, entries: Sequence[Entry]) -> Known:
        """What is stored of that which the chunk mentions."""
        targets: set[Target] = set()
        feedback: set[Any] = set()
        for entry in entries:
            for part in entry.item.parts:
                if isinstance(part, Feedback):
                    targets.add((part.row["target_kind"], part.row["target_id"]))
                    feedback.update(feedback_keys(part.row))
        known = self._lookup.known(set(calls.interaction_id), set(calls.conversation_id), targets, feedback)
        if feedback:
            for waiting in self.waiting:
                known.add_feedback(waiting)
        return known

    def _classify(self, entry: Entry, calls: Calls, known: Known, outcome: Outcome) -> None:
        item, _, place = entry
        if item.rejected is not None:
            self._reject(entry, item.rejected, outcome)
            return
        clash = False
        times: list[tuple[int, str]] = []
        notes: set[str] = set()
        for part in item.parts:
            if isinstance(part, Call):
                first, place = place, place + part.choices
                end = "dropped" if part.dropped else self._call(part, calls, range(first, place), known, outcome)
                if end == "new":
                    times.append((calls.ts[first], calls.ts_quality[first]))
                    notes.update(part.notes)
            elif (end := self._feedback(part.row, known, outcome)) == "new":
                times.append((micros(part.row["ts"]), part.quality))
            clash |= end == "clash"
        if times:
            outcome.report.count("kept")
            notes.update(f"time {quality}" for _, quality in times if quality != "ok")
            notes.update(f"repaired: {note}" for note in item.notes)
            outcome.report.note(*sorted(notes), *(f"part dropped: {reason}" for reason in item.dropped))
            if clash:
                outcome.report.note(f"part dropped: {CLASH}")
            self._move_on(times, outcome)
        elif clash:
            self._reject(entry, Rejected("quarantined", CLASH), outcome)
        else:
            outcome.report.count("duplicate")

    def _reject(self, entry: Entry, rejected: Rejected, outcome: Outcome) -> None:
        outcome.report.count(rejected.outcome, rejected.reason)
        if rejected.outcome == "quarantined":
            row = quarantine_row(entry.item.file, entry.item.offset, entry.raw, rejected.reason, self._now)
            outcome.quarantine.append(row)

    def _call(self, call: Call, calls: Calls, places: range, known: Known, outcome: Outcome) -> str:
        """Take a call in if it is ``new``; else it is ``known``, or a ``clash``: a known id with other content."""
        hashes = {calls.interaction_id[place]: calls.content_hash[place] for place in places}
        if not known.interactions.keys().isdisjoint(hashes):
            return "known" if call.secondhand or hashes.items() <= known.interactions.items() else "clash"
        known.add_call(calls, places)
        outcome.calls.extend(places)
        if self.waiting:
            first = places[0]
            targets: list[Target] = [("interaction", own) for own in hashes]
            targets += [("conversation", calls.conversation_id[first]), *metadata_targets(calls.metadata(first))]
            found = self.waiting.take(targets, calls.interaction_id[first])
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

    def _move_on(self, times: Sequence[tuple[int, str]], outcome: Outcome) -> None:
        """Look at the times of a kept record: of several in it the newest says whether it is late."""
        plausible = [ts for ts, quality in times if quality == "ok"]
        if not plausible:
            return
        ts, newest = max(plausible), outcome.newest
        if newest is None or ts > newest:
            outcome.newest = ts
        elif ts < newest - LATE:
            outcome.report.late += 1

    def _commit(
        self,
        outcome: Outcome,
        calls: Calls,
        rewrites: Rewrites,
        position: Json | None,
        quarantine: Quarantine | None,
    ) -> None:
        written, hidden = [*rewrites.written], [*rewrites.hidden]
        for key, places in _by_day(outcome.calls, calls.ts.__getitem__):
            written.append(write_segment(self.home, "interactions", self.task, key, calls.rows(places)))
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
        days = _by_day(rows, lambda row: micros(row["ts"]))
        return [write_segment(self.home, table, self.task, key, own) for key, own in days]


def _by_day(rows: Sequence[T], time: Callable[[T], int]) -> list[tuple[str, list[T]]]:
    """Rows by their day; ``time`` gives microseconds since 1970."""
    found: dict[str, list[T]] = defaultdict(list)
    for row in rows:
        found[day_of(time(row))].append(row)
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
