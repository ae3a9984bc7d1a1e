"""Records that were read, ready to be classified: the texts in columns, and beside them what became of each line.

A batch is made from lines alone, whatever is stored, so that it can be made in another process than the one that
classifies and commits it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from flywheel.intake.marks import NOT_TEXT, content_kinds
from flywheel.intake.normalise import CallRow, Normaliser
from flywheel.intake.records import Dropped, InteractionRecord, Json, Record, SecondhandRecord
from flywheel.intake.times import order_time
from flywheel.store.tables import INTERACTIONS

TURN_COLUMNS = ("turn_index", "parent_interaction_id")
"""Columns that depend on a call's neighbours: `conversations` fills them."""

_COLUMNS = pa.schema([INTERACTIONS.field(name) for name in CallRow._fields])


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
        dropped: whether it is passed over with its rows.
    """

    choices: int
    secondhand: bool = False
    notes: tuple[str, ...] = ()
    dropped: bool = False


class Feedback(NamedTuple):
    """A piece of feedback in an item: its row, and the quality of its time."""

    row: Json
    quality: str


class Mapped(NamedTuple):
    """An item with its parts, in few objects: it may travel between processes."""

    file: str
    offset: int
    parts: tuple[Call | Feedback, ...]
    rejected: Rejected | None = None
    dropped: tuple[str, ...] = ()
    notes: frozenset[str] = frozenset()


@dataclass(slots=True)
class Batch:
    """Items in their order, and the rows of their calls without ``turn_index``.

    Args:
        raws: the first bytes of each item's line, for quarantine.
        weight: bytes that it may take, roughly.
    """

    items: list[Mapped]
    raws: list[bytes]
    calls: pa.Table
    weight: int


class Entry(NamedTuple):
    """An item as it is classified: the first bytes of its line, and where the rows of its calls begin."""

    item: Mapped
    raw: bytes
    place: int


class Calls:
    """The rows of a chunk's calls, as a table and, as far as classification looks at them, as a list of each column.

    ``ts`` is in microseconds since 1970, ``request_length`` in characters. ``turn_index`` and ``parent_interaction_id``
    are filled by `conversations`; a parent that the record names is there from the start.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.interaction_id: list[str] = table["interaction_id"].to_pylist()
        self.content_hash: list[str] = table["content_hash"].to_pylist()
        self.conversation_id: list[str] = table["conversation_id"].to_pylist()
        self.user_key: list[str] = table["user_key"].to_pylist()
        self.ts: list[int] = table["ts"].cast(pa.int64()).to_pylist()
        self.ts_quality: list[str] = table["ts_quality"].to_pylist()
        self.choice_index: list[int] = table["choice_index"].to_pylist()
        self.request_length: list[int] = pc.binary_length(table["request"]).to_pylist()
        self.parent_interaction_id: list[str] = table["parent_interaction_id"].to_pylist()
        self.turn_index = [0] * table.num_rows

    def metadata(self, place: int) -> Json:
        """The metadata of one row."""
        found: Json = json.loads(self._table["metadata"][place].as_py())
        return found

    def named(self, place: int) -> Json:
        """By what one row is known: its own id, its conversation's and its user's."""
        names = ("interaction_id", "conversation_id", "user_key")
        return {name: getattr(self, name)[place] for name in names}

    def turn(self, place: int) -> tuple[int, int, str]:
        """What decides the place of a row's call among its conversation's: time, length of the request, id."""
        time = order_time(self.ts[place], self.ts_quality[place])
        return time, self.request_length[place], call_of(self.interaction_id[place], self.choice_index[place])

    def rows(self, places: Sequence[int]) -> pa.Table:
        """Whole rows of the interactions table, in that order.

        Args:
            places: in rising order.
        """
        found = self._table
        if len(places) < found.num_rows:
            found = found.take(pa.array(places, pa.int64()))
        turns = {name: [getattr(self, name)[place] for place in places] for name in TURN_COLUMNS}
        columns = [turns[name] if name in turns else found[name] for name in INTERACTIONS.names]
        return pa.table(columns, schema=INTERACTIONS)


def call_of(interaction_id: str, choice_index: int) -> str:
    """The id of the call that a row belongs to: further choices have ``#<k>`` behind it."""
    return interaction_id.rsplit("#", 1)[0] if choice_index else interaction_id


def make_batch(items: Sequence[Item], normaliser: Normaliser, weight: int = 0) -> Batch:
    """The batch of some items."""
    rows: list[CallRow] = []
    mapped = [_mapped(item, normaliser, rows) for item in items]
    columns = zip(*rows, strict=True) if rows else repeat(())
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _COLUMNS, strict=False)]
    raws = [item.raw for item in items]
    return Batch(mapped, raws, pa.Table.from_arrays(arrays, schema=_COLUMNS), weight)


def joined(batches: Sequence[Batch]) -> tuple[Calls, list[Entry]]:
    """The calls of several batches as one table, and their items."""
    entries: list[Entry] = []
    place = 0
    for batch in batches:
        for item, raw in zip(batch.items, batch.raws, strict=True):
            entries.append(Entry(item, raw, place))
            for part in item.parts:
                if isinstance(part, Call):
                    place += part.choices
    return Calls(pa.concat_tables([_COLUMNS.empty_table(), *(batch.calls for batch in batches)])), entries


def _mapped(item: Item, normaliser: Normaliser, calls: list[CallRow]) -> Mapped:
    if isinstance(item.found, Rejected):
        return Mapped(item.file, item.offset, (), item.found, (), item.notes)
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
    return Mapped(item.file, item.offset, (*parts,), None, (*dropped,), item.notes)
