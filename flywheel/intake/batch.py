"""Records that were read, ready to be classified: the texts in columns, and beside them what became of each line.

A batch is made from lines alone, whatever is stored, so that it can be made in another process than the one that
classifies and commits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from flywheel.intake.marks import NOT_TEXT, content_kinds
from flywheel.intake.normalise import CallRow, Normaliser
from flywheel.intake.records import Dropped, InteractionRecord, Json, Record, SecondhandRecord
from flywheel.intake.times import micros
from flywheel.store.tables import INTERACTIONS

TURN_COLUMNS = ("turn_index", "parent_interaction_id")
"""Columns that depend on a call's neighbours: `conversations` fills them."""

_COLUMNS = pa.schema([INTERACTIONS.field(name) for name in CallRow._fields])
_LOOKED_AT = (
    *("interaction_id", "content_hash", "conversation_id", "user_key", "ts", "ts_quality"),
    *("parent_interaction_id", "choice_index", "metadata"),
)


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


class Call(NamedTuple):
    """A call in an item; its rows are the next ones of the batch's table.

    Args:
        choices: how many rows it has.
        secondhand: whether another account of the same call goes before this one.
        notes: remarks for the report when it is kept.
    """

    choices: int
    secondhand: bool
    notes: tuple[str, ...]


class Feedback(NamedTuple):
    """A piece of feedback in an item: its row, and the quality of its time."""

    row: Json
    quality: str


class Mapped(NamedTuple):
    """An item with its parts, in few objects: it may travel between processes.

    Args:
        raw: the first bytes of the line of an item that was rejected, for it has no parts.
    """

    file: str
    offset: int
    parts: tuple[Call | Feedback, ...]
    rejected: Rejected | None = None
    raw: bytes = b""
    dropped: tuple[str, ...] = ()
    notes: frozenset[str] = frozenset()


@dataclass(slots=True)
class Batch:
    """Items in their order, and the rows of their calls without `TURN_COLUMNS`.

    Args:
        weight: bytes that it may take, roughly.
    """

    items: list[Mapped]
    calls: pa.Table
    weight: int


@dataclass(slots=True)
class Part:
    """A call or a piece of feedback, as classification looks at it.

    Args:
        rows: of feedback its row; of a call what is looked at of each choice: `_LOOKED_AT`, ``ts`` in microseconds
            since 1970, and ``place``, where its row lies in the table of calls.
        ts: in microseconds since 1970.
    """

    rows: Sequence[Json]
    call: bool
    ts: int
    quality: str
    secondhand: bool = False
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Entry:
    """An item with its parts; none when it was rejected."""

    item: Mapped
    parts: list[Part]


def make_batch(items: Sequence[Item], normaliser: Normaliser, weight: int = 0) -> Batch:
    """The batch of some items."""
    rows: list[CallRow] = []
    mapped = [_mapped(item, normaliser, rows) for item in items]
    columns = zip(*rows, strict=True) if rows else repeat(())
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _COLUMNS, strict=False)]
    return Batch(mapped, pa.Table.from_arrays(arrays, schema=_COLUMNS), weight)


def joined(batches: Sequence[Batch]) -> tuple[pa.Table, list[Entry]]:
    """The rows of several batches as one table, and their items with what classification looks at."""
    calls = pa.concat_tables([_COLUMNS.empty_table(), *(batch.calls for batch in batches)])
    rows = _looked_at(calls)
    entries: list[Entry] = []
    place = 0
    for item in (item for batch in batches for item in batch.items):
        parts: list[Part] = []
        for part in item.parts:
            if isinstance(part, Call):
                own = rows[place : place + part.choices]
                place += part.choices
                parts.append(Part(own, True, own[0]["ts"], own[0]["ts_quality"], part.secondhand, part.notes))
            else:
                parts.append(Part([part.row], False, micros(part.row["ts"]), part.quality))
        entries.append(Entry(item, parts))
    return calls, entries


def call_rows(calls: pa.Table, rows: Sequence[Json]) -> pa.Table:
    """Whole rows of the interactions table, for calls with their turns numbered."""
    places = [row["place"] for row in rows]
    found = calls if places == [*range(calls.num_rows)] else calls.take(pa.array(places, pa.int64()))
    for name in TURN_COLUMNS:
        column = INTERACTIONS.field(name)
        filled = pa.array([row[name] for row in rows], column.type)
        named = name in found.column_names
        found = (found.drop_columns(name) if named else found).append_column(column, filled)
    return found.select(INTERACTIONS.names)


def _looked_at(calls: pa.Table) -> list[Json]:
    columns: list[Sequence[Any]] = [range(calls.num_rows), pc.binary_length(calls["request"]).to_pylist()]
    for name in _LOOKED_AT:
        column = calls[name]
        columns.append((column.cast(pa.int64()) if name == "ts" else column).to_pylist())
    names = ("place", "request_length", *_LOOKED_AT)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _mapped(item: Item, normaliser: Normaliser, calls: list[CallRow]) -> Mapped:
    if isinstance(item.found, Rejected):
        return Mapped(item.file, item.offset, (), item.found, item.raw, (), item.notes)
    parts: list[Call | Feedback] = []
    dropped: list[str] = []
    for one in item.found:
        if isinstance(one, Dropped):
            dropped.append(one.reason)
        elif isinstance(one, InteractionRecord):
            kinds = content_kinds(one)
            rows = normaliser.interaction(one, item.file, item.offset, kinds)
            calls += rows
            parts.append(Call(len(rows), isinstance(one, SecondhandRecord), (NOT_TEXT,) if kinds else ()))
        else:
            parts.append(Feedback(*normaliser.feedback(one, item.file, item.offset)))
    return Mapped(item.file, item.offset, (*parts,), None, b"", (*dropped,), item.notes)
