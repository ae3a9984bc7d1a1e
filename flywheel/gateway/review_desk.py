"""The review queue as one gateway hands it out: looked up seldom, less what reviewers have said since.

Feedback is in the log at once, but in the store only after the next intake. In between the desk remembers what it was
told, so that no reviewer is asked what another one has just answered.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import Any

from flywheel.config import Config
from flywheel.gateway.review_read import QUEUE_LIMIT, Reading, Said, read_review, standing
from flywheel.store.home import Home
from flywheel.store.registry import Registry

LOOK_AGAIN_S = 5.0
"""So long one look into the store serves everybody."""

MOST_REMEMBERED = 10_000
"""Feedback per task that is remembered until it is in the store, the newest; far more than people give meanwhile."""


class ReviewDesk:
    """Hands out what waits for review. Used on the event loop; reads the store on threads, one at a time for a task."""

    def __init__(self, config: Config, home: Home, registry: Registry) -> None:
        self._config, self._home, self._registry = config, home, registry
        self._told: defaultdict[str, dict[str, Said]] = defaultdict(dict)
        self._readings: dict[str, tuple[float, Reading]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def note(self, records: list[dict[str, Any]]) -> None:
        """Remember what reviewers said in these records of the log, which are on disk."""
        for record in records:
            if record["source"] != "reviewer" or record["target"]["kind"] != "interaction":
                continue
            told = self._told[record["task"]]
            author_key = self._home.user_key(record["author"])
            about, kind = record["target"]["id"], record["feedback"]["kind"]
            told[record["id"]] = Said.of(record["id"], about, author_key, kind, record["supersedes"])
            if len(told) > MOST_REMEMBERED:
                del told[next(iter(told))]

    async def next_items(self, task: str, author: str, limit: int) -> dict[str, Any]:
        """What ``author`` should label next, and how far the review is.

        Returns:
            ``items``: at most ``limit``, see `Reading`; ``choices``; ``waiting``: how many wait in all; ``more``:
            whether even more do, beyond what is counted; ``labelled_today``: answers the author has judged today (UTC).
        """
        reading = await self._read(task)
        author_key = self._home.user_key(author)
        told = self._told[task]
        judged = {said.interaction_id for said in standing(told.values())}
        ordered = _from_own_place(reading.items, author_key)
        items = [item for item in ordered if item["interaction_id"] not in judged]
        everything = standing({**{said.feedback_id: said for said in reading.today}, **told}.values())
        return {
            "items": items[:limit],
            "choices": reading.choices,
            "waiting": len(items),
            "more": len(reading.items) >= QUEUE_LIMIT,
            "labelled_today": len({said.interaction_id for said in everything if said.author_key == author_key}),
        }

    async def _read(self, task: str) -> Reading:
        async with self._locks[task]:
            at, reading = self._readings.get(task, (0.0, None))
            if reading is None or time.monotonic() - at > LOOK_AGAIN_S:
                told = self._told[task]
                reading = await asyncio.to_thread(
                    read_review, self._config, self._home, self._registry, task, frozenset(told)
                )
                for feedback_id in reading.known:
                    told.pop(feedback_id, None)
                self._readings[task] = (time.monotonic(), reading)
            return reading


def _from_own_place(items: list[dict[str, Any]], author_key: str) -> list[dict[str, Any]]:
    """Each reason's items in their order, but from a place of the author's own, so that two reviewers meet late."""
    ordered = []
    for why in dict.fromkeys(item["why"] for item in items):
        same = [item for item in items if item["why"] == why]
        start = int(author_key, 16) * len(same) >> 4 * len(author_key)
        ordered += same[start:] + same[:start]
    return ordered
