"""Which of two answers somebody preferred: the only thing, beside edits and regenerated answers, that makes a pair."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_RANK = {"verifier": 3, "reviewer": 2, "user": 1}
SIDES = ("chosen", "rejected")


@dataclass(frozen=True)
class Pair:
    """Two answers to one prompt, one of which is better.

    Args:
        weight: what the pair weighs in training.
        source: who preferred it.
        shown_first: ``chosen`` or ``rejected``, if it is known which one the person saw first; else "".
    """

    chosen: str
    rejected: str
    weight: float
    source: str
    shown_first: str = ""


def read_pair(rows: Iterable[dict[str, Any]], answer: str) -> Pair | None:
    """What the strongest preference says; None when there is none, or when equally strong ones disagree.

    Args:
        rows: the feedback that counts, of one interaction.
        answer: the model's answer, which a preference that only names the better text was compared with.
    """
    found = [(_RANK[row["source"]], pair) for row in rows if (pair := _read(row, answer)) is not None]
    best = max((rank for rank, _ in found), default=0)
    pairs = [pair for rank, pair in found if rank == best]
    return pairs[-1] if len({(pair.chosen, pair.rejected) for pair in pairs}) == 1 else None


def _read(row: dict[str, Any], answer: str) -> Pair | None:
    if row["kind"] != "preference" or row["source"] not in _RANK:
        return None
    value = json.loads(row["value"]) if row["value"] else None
    value = value if isinstance(value, dict) else {SIDES[0]: row["text"], SIDES[1]: answer}
    chosen, rejected = (value.get(side) for side in SIDES)
    if not (isinstance(chosen, str) and isinstance(rejected, str)):
        return None  # answers that are not text, or models
    chosen, rejected = chosen.strip(), rejected.strip()
    if not chosen or not rejected or chosen == rejected:
        return None
    shown = value.get("shown_first")
    return Pair(chosen, rejected, 1.0, row["source"], shown if shown in SIDES else "")
