"""Records that were read, ready to be classified: the texts in columns, and beside them what classification looks at.

A batch is made from lines alone, whatever is stored, so that it can be made in another process than the one that
classifies and commits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import pyarrow as pa

from flywheel.intake.marks import NOT_TEXT, content_kinds
from flywheel.intake.normalise import Normaliser
from flywheel.intake.records import Dropped, InteractionRecord, Json, Record, SecondhandRecord
from flywheel.store.tables import INTERACTIONS

TURN_COLUMNS = ("turn_index", "parent_interaction_id")
"""Columns that depend on a call's neighbours: `conversations` fills them."""

_LOOKED_AT = (
    *("interaction_id", "content_hash", "conversation_id", "user_key", "ts", "ts_quality"),
    *("parent_interaction_id", "choice_index"),
)
_look = itemgetter(*_LOOKED_AT)
_COLUMNS = pa.schema([column for column in INTERACTIONS if column.name not in TURN_COLUMNS])
_KINDS = [(column.name, column.type) for column in _COLUMNS]


@dataclass(frozen=True)
class Rejected:
    """A record that ended before it was understood: ``quarantined`` or ``skipped``, and why."""

    outcome: str
    reason: str


@dataclass(slots=True)
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


@dataclass(slots=True)
class Part:
    """A call or a piece of feedback in an item.

    Args:
        rows: of feedback its row; of a call what is looked at of each choice, with ``place``, where its row lies in the
            batch's table.
        metadata: the call's.
        secondhand: whether another account of the same call goes before this one.
        notes: remarks for the report when it is kept.
    """

    rows: list[Json]
    quality: str
    call: bool
    metadata: Json = field(default_factory=dict)
    secondhand: bool = False
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Entry:
    """An item with its parts; none when it was rejected."""

    file: str
    offset: int
    raw: bytes
    parts: list[Part]
    rejected: Rejected | None
    dropped: tuple[str, ...]
    notes: frozenset[str]


@dataclass(slots=True)
class Batch:
    """Entries in their order, and the rows of their calls without `TURN_COLUMNS`.

    Args:
        weight: bytes that it may take, roughly.
    """

    entries: list[Entry]
    calls: pa.Table
    weight: int


def make_batch(items: Sequence[Item], normaliser: Normaliser, weight: int = 0) -> Batch:
    """The batch of some items."""
    rows: list[Json] = []
    entries = [_entry(item, normaliser, rows) for item in items]
    columns = [pa.array([row[name] for row in rows], kind) for name, kind in _KINDS]
    return Batch(entries, pa.Table.from_arrays(columns, schema=_COLUMNS), weight)


def joined(batches: Sequence[Batch]) -> tuple[pa.Table, list[Entry]]:
    """The rows of several batches as one table, and their entries with the places of their rows in it."""
    entries: list[Entry] = []
    base = 0
    for batch in batches:
        if base:
            for row in (row for entry in batch.entries for part in entry.parts if part.call for row in part.rows):
                row["place"] += base
        base += batch.calls.num_rows
        entries += batch.entries
    return pa.concat_tables([_COLUMNS.empty_table(), *(batch.calls for batch in batches)]), entries


def call_rows(calls: pa.Table, rows: Sequence[Json]) -> pa.Table:
    """Whole rows of the interactions table, for calls with their turns numbered."""
    places = [row["place"] for row in rows]
    found = calls if places == [*range(calls.num_rows)] else calls.take(pa.array(places, pa.int64()))
    for name in TURN_COLUMNS:
        column = INTERACTIONS.field(name)
        found = found.append_column(column, pa.array([row[name] for row in rows], column.type))
    return found.select(INTERACTIONS.names)


def _entry(item: Item, normaliser: Normaliser, calls: list[Json]) -> Entry:
    if isinstance(item.found, Rejected):
        return Entry(item.file, item.offset, item.raw, [], item.found, (), item.notes)
    parts: list[Part] = []
    dropped: list[str] = []
    for one in item.found:
        if isinstance(one, Dropped):
            dropped.append(one.reason)
        elif isinstance(one, InteractionRecord):
            kinds = content_kinds(one)
            rows = normaliser.interaction(one, item.file, item.offset, kinds)
            looked_at = []
            for place, row in enumerate(rows, len(calls)):
                own = dict(zip(_LOOKED_AT, _look(row), strict=True))
                own["place"], own["request_length"] = place, len(row["request"])
                looked_at.append(own)
            calls += rows
            secondhand, notes = isinstance(one, SecondhandRecord), (NOT_TEXT,) if kinds else ()
            parts.append(Part(looked_at, rows[0]["ts_quality"], True, one.metadata, secondhand, notes))
        else:
            row, quality = normaliser.feedback(one, item.file, item.offset)
            parts.append(Part([row], quality, False))
    return Entry(item.file, item.offset, item.raw, parts, None, tuple(dropped), item.notes)
