"""The order of a conversation's turns, by time, also when an earlier turn arrives after a later one.

Turns are ordered by time (one that cannot be true counts as none, and comes first), then by how much the request holds
(a longer history comes later; logs often have whole seconds), then by id. A late turn moves those after it: their rows
are written anew in the same transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import pyarrow.parquet as pq

from flywheel.intake.batch import Calls, call_of
from flywheel.intake.records import Json
from flywheel.intake.times import order_time
from flywheel.store import segments
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import Segment, write_segment

_SQL = (
    "SELECT interaction_id, conversation_id, epoch_us(ts) AS ts, ts_quality, turn_index, parent_interaction_id,"
    " choice_index, strlen(request) AS request_length FROM rows WHERE conversation_id IN (SELECT unnest($1))"
)


Holding = Callable[[Collection[str]], list[str]]


@dataclass
class Rewrites:
    """Segments that replace others because turns in them moved."""

    hidden: list[str] = field(default_factory=list)
    written: list[Segment] = field(default_factory=list)


def number_turns(
    home: Home,
    registry: Registry,
    task: str,
    calls: Calls,
    places: Sequence[int],
    stored: Collection[str],
    holding: Holding,
) -> Rewrites:
    """Fill ``turn_index`` and ``parent_interaction_id`` of new rows in place; rewrite stored rows that move.

    A parent that the record itself names stays.

    Args:
        places: of the new rows among ``calls``.
        stored: ids of conversations that have turns in the store.
        holding: finds the segments that may hold them.
    """
    old: dict[str, list[Json]] = defaultdict(list)
    if among := holding(stored):
        found = segments.query(home, registry, "interactions", task, _SQL, [sorted(stored)], among=among)
        for turn in found.to_pylist():
            old[turn["conversation_id"]].append(turn)
    new: dict[str, list[int]] = defaultdict(list)
    for place in places:
        new[calls.conversation_id[place]].append(place)
    moved: dict[str, Json] = {}
    for name, turns in new.items():
        earlier = [(turn, _stored_turn(turn)) for turn in old.get(name, ())]
        if len(turns) == 1 and not earlier:
            continue  # the first turn
        own = [(place, calls.turn(place)) for place in turns]
        after = _order([key for _, key in (*earlier, *own)])
        for place, (_, _, call) in own:
            calls.turn_index[place], before = after[call]
            calls.parent_interaction_id[place] = calls.parent_interaction_id[place] or before
        was = _order([key for _, key in earlier])
        for turn, (_, _, call) in earlier:
            index, before = after[call]
            named = turn["parent_interaction_id"] != was[call][1]
            row = {"turn_index": index} | ({} if named else {"parent_interaction_id": before})
            if any(turn[key] != value for key, value in row.items()):
                moved[turn["interaction_id"]] = row
    return _rewrite(home, registry, task, moved, among) if moved else Rewrites()


def _stored_turn(row: Json) -> tuple[int, int, str]:
    """As `Calls.turn`, of a stored row."""
    time = order_time(row["ts"], row["ts_quality"])
    return time, row["request_length"], call_of(row["interaction_id"], row["choice_index"])


def _order(turns: Collection[tuple[int, int, str]]) -> dict[str, tuple[int, str]]:
    """The place of each call among those of its conversation, and the id of the call before it."""
    found: dict[str, tuple[int, str]] = {}
    before = ""
    for index, (_, _, own) in enumerate(sorted(set(turns))):
        found[own] = index, before
        before = own
    return found


def _rewrite(home: Home, registry: Registry, task: str, moved: dict[str, Json], among: Collection[str]) -> Rewrites:
    rewrites = Rewrites()
    with registry.read() as tx:
        candidates = segments.visible(tx, "interactions", task)
    for segment in (row for row in candidates if row["path"] in among):
        path = home.data / segment["path"]
        ids = pq.ParquetFile(path).read(columns=["interaction_id"]).column(0).to_pylist()
        if moved.keys().isdisjoint(ids):
            continue
        rows = [row | moved.get(row["interaction_id"], {}) for row in pq.ParquetFile(path).read().to_pylist()]
        rewrites.hidden.append(segment["path"])
        rewrites.written.append(write_segment(home, "interactions", task, segment["day"], rows))
    return rewrites
