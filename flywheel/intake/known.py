"""What is stored already, as far as one chunk of records asks: a few column scans by DuckDB, no rows held."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from flywheel.intake.batch import Calls
from flywheel.intake.orphans import Target, metadata_targets
from flywheel.intake.records import Json
from flywheel.intake.times import order_time
from flywheel.store import segments
from flywheel.store.home import Home
from flywheel.store.keys import SegmentKeys
from flywheel.store.registry import Registry, schema

_SENDERS = "concat(source, chr(31), source_id)"


@dataclass
class Known:
    """The stored ids that a chunk mentions, kept up to date as the chunk's own records are added.

    Args:
        interactions: content hash by interaction id.
        conversations: ids of conversations with at least one interaction.
        feedback: feedback ids, and ``(source, source_id)`` pairs.
        newest: the newest interaction by metadata target: its time in microseconds and its id.
        wanted: the metadata targets that feedback of the chunk names.
    """

    interactions: dict[str, str] = field(default_factory=dict)
    conversations: set[str] = field(default_factory=set)
    feedback: set[Any] = field(default_factory=set)
    newest: dict[Target, tuple[int, str]] = field(default_factory=dict)
    wanted: frozenset[Target] = frozenset()

    def add_call(self, calls: Calls, places: range) -> None:
        """Take in the rows of one call."""
        for place in places:
            self.interactions[calls.interaction_id[place]] = calls.content_hash[place]
        first = places[0]
        self.conversations.add(calls.conversation_id[first])
        if self.wanted:
            time, _, own = calls.turn(first)
            self.add_metadata(calls.metadata(first), time, own)

    def add_metadata(self, metadata: Json, time: int, own: str) -> None:
        """Let feedback that names an interaction by its metadata find this one, if it is the newest of them."""
        for target in self.wanted.intersection(metadata_targets(metadata)):
            self.newest[target] = max(self.newest.get(target, (time, own)), (time, own))

    def add_feedback(self, row: Json) -> None:
        """Take in a feedback row."""
        self.feedback.update(feedback_keys(row))

    def find(self, target: Target) -> Target | None:
        """The interaction or conversation that a feedback target means; None when it is unknown."""
        kind, name = target
        if kind in ("interaction", "either") and name in self.interactions:
            return "interaction", name
        if kind in ("conversation", "either") and name in self.conversations:
            return "conversation", name
        return ("interaction", self.newest[target][1]) if target in self.newest else None


def feedback_keys(row: Json) -> list[Any]:
    """By what a feedback row is recognised as one that is there already."""
    keys: list[Any] = [row["feedback_id"]]
    return [*keys, (row["source"], row["source_id"])] if row.get("source_id") else keys


class Lookup:
    """Fills a `Known` from the visible segments of one task."""

    def __init__(self, home: Home, registry: Registry, task: str) -> None:
        self._home, self._registry, self._task = home, registry, task
        self._keys = {
            table: SegmentKeys(home, registry, table, task, keys)
            for table, keys in (
                ("interactions", ("interaction_id", "conversation_id")),
                ("feedback", ("feedback_id", f"CASE WHEN source_id <> '' THEN {_SENDERS} END")),
            )
        }

    def holding(self, names: Collection[str]) -> list[str]:
        """Paths of the segments that may hold interactions or conversations of these ids."""
        return self._keys["interactions"].segments_with(names)

    def known(
        self,
        interactions: Collection[str],
        conversations: Collection[str],
        targets: Collection[Target],
        feedback: Collection[Any],
    ) -> Known:
        """Ask for these ids of interactions and conversations, targets of feedback and keys of feedback.

        An id is looked up with its choices ``<id>#<k>`` only if they are named themselves.
        """
        found = Known(wanted=frozenset(target for target in targets if target[0] == "metadata"))
        ids = {*interactions, *(name for kind, name in targets if kind in ("interaction", "either"))}
        sql = "SELECT interaction_id, content_hash FROM rows WHERE interaction_id IN (SELECT unnest($1))"
        for row in self._query("interactions", sql, ids):
            found.interactions[row["interaction_id"]] = row["content_hash"]
        sql = "SELECT DISTINCT conversation_id FROM rows WHERE conversation_id IN (SELECT unnest($1))"
        names = {*conversations, *(name for kind, name in targets if kind in ("conversation", "either"))}
        found.conversations = {row["conversation_id"] for row in self._query("interactions", sql, names)}
        self._metadata(found)
        keys = {key if isinstance(key, str) else "\x1f".join(key) for key in feedback}
        sql = (
            "SELECT feedback_id, source, source_id FROM rows WHERE feedback_id IN (SELECT unnest($1))"
            f" OR {_SENDERS} IN (SELECT unnest($1))"
        )
        for row in self._query("feedback", sql, keys):
            found.add_feedback(row)
        return found

    def orphans(self) -> list[Json]:
        """The feedback that waits."""
        if not waiting_count(self._registry, self._task):
            return []
        return segments.read_rows(self._home, self._registry, "orphans", self._task, "feedback_id")

    def _metadata(self, found: Known) -> None:
        # The canonical JSON of the metadata holds `"key":"value"` or `"key":value`: the text narrows, Python decides.
        needles = {needle for _, name in found.wanted for needle in _needles(name)}
        sql = (
            "SELECT DISTINCT interaction_id, epoch_us(ts) AS ts, ts_quality, metadata"
            " FROM rows, (SELECT unnest($1) AS needle) WHERE choice_index = 0 AND contains(metadata, needle)"
        )
        for row in self._query("interactions", sql, needles, everywhere=True):
            time = order_time(row["ts"], row["ts_quality"])
            found.add_metadata(json.loads(row["metadata"]), time, row["interaction_id"])

    def _query(self, table: str, sql: str, names: Collection[str], *, everywhere: bool = False) -> list[Json]:
        among = None if everywhere and names else self._keys[table].segments_with(names)
        if among == []:
            return []
        found = segments.query(self._home, self._registry, table, self._task, sql, [sorted(names)], among=among)
        rows: list[Json] = found.to_pylist()
        return rows


def waiting_count(registry: Registry, task: str) -> int:
    """How much feedback waits for its target, from the registry alone."""
    table = schema.segments
    with registry.read() as tx:
        rows = tx.scalar(sa.select(sa.func.sum(table.c.rows)).where(table.c.table == "orphans", table.c.task == task))
    return int(rows or 0)


def _needles(name: str) -> list[str]:
    pair = json.loads(name)
    key = json.dumps(pair["key"])
    return [f"{key}:{json.dumps(pair['value'])}", f"{key}:{pair['value']}"]
