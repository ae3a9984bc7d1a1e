"""Our own customers: messages made of an opening, a situation, details and a closing, no two of them near copies."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from examples.support_desk.similar import near_pairs

APART = 0.6
"""Messages at least this similar count as near copies here: stricter than the product's own 0.7."""
TRIES = 16
"""Wordings tried per situation; those too near another are thrown away."""
TRAFFIC_KEPT, UNSEEN_KEPT = 7, 8


@dataclass(frozen=True)
class Message:
    """What a customer writes, and the queue that should get it."""

    text: str
    queue: str


@dataclass(frozen=True)
class Material:
    """Everything that can be said during one demo; no text of one list is a near copy of one in the other.

    Attributes:
        initial: queues that exist from the start.
        later: queues that appear in loop 2.
        traffic: messages agents may give feedback on, per queue, in random order.
        unseen: messages for tests and for the background, per queue, in random order.
    """

    initial: tuple[str, ...]
    later: tuple[str, ...]
    traffic: dict[str, list[str]]
    unseen: dict[str, list[str]]

    @property
    def queues(self) -> tuple[str, ...]:
        """All queues, the initial ones first."""
        return self.initial + self.later


def own_material(seed: int = 0) -> Material:
    """The shop's customers, the same for the same seed."""
    book: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "phrases.yaml").read_text(encoding="utf-8"))
    rng = random.Random(seed)
    drafts: list[tuple[str, str, int, str]] = []
    for queue, sides in {**book["initial"], **book["later"]}.items():
        for side, situations in sides.items():
            for number, situation in enumerate(situations):
                wordings = {_word(situation, book, rng) for _ in range(TRIES)}
                drafts += [(side, queue, number, text) for text in sorted(wordings)]
    rng.shuffle(drafts)
    kept: dict[str, dict[str, list[str]]] = {"traffic": defaultdict(list), "unseen": defaultdict(list)}
    for side, queue, text in _apart(drafts):
        kept[side][queue].append(text)
    return Material(tuple(book["initial"]), tuple(book["later"]), dict(kept["traffic"]), dict(kept["unseen"]))


def _apart(drafts: list[tuple[str, str, int, str]]) -> list[tuple[str, str, str]]:
    near: dict[int, set[int]] = defaultdict(set)
    for i, j in near_pairs([text for *_, text in drafts], APART):
        near[i].add(j)
        near[j].add(i)
    chosen: set[int] = set()
    per_situation: dict[tuple[str, str, int], int] = defaultdict(int)
    result = []
    for index, (side, queue, number, text) in enumerate(drafts):
        limit = TRAFFIC_KEPT if side == "traffic" else UNSEEN_KEPT
        if per_situation[side, queue, number] < limit and not near[index] & chosen:
            chosen.add(index)
            per_situation[side, queue, number] += 1
            result.append((side, queue, text))
    return result


def _word(situation: str, book: dict[str, Any], rng: random.Random) -> str:
    opener, closer = rng.choice(book["openers"]), rng.choice(book["closers"])
    end = "" if not closer else "." if closer.strip()[0].isupper() else ","
    text = _fill(opener + situation + end + closer, book, rng)
    style = rng.random()
    if style < 0.25:
        return text.lower()
    return text[0].upper() + text[1:] if style < 0.8 else text.replace(",", "").replace(".", "")


def _fill(text: str, book: dict[str, Any], rng: random.Random) -> str:
    def value(match: re.Match[str]) -> str:
        slot = match.group(1)
        if slot == "order":
            return str(rng.randrange(1000, 9999))
        return str(rng.choice(book["names"] if slot == "name" else book["slots"][slot]))

    return re.sub(r"\{(\w+)\}", value, text)
