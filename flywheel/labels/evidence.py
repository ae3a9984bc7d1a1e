"""Feedback on one interaction as evidence: which rows count, what each says about the answer, and how strong it is.

Strength falls from verifier over reviewer, correction, outcome, thumb and rating (equals) and implicit signs to judge.
Comments are kept as feedback and say nothing here; preferences are read by `preferences`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from rapidfuzz.distance import Levenshtein

from flywheel.config_labels import EditPolicy, Source

Row = dict[str, Any]
Author = tuple[str, str]
"""Source and key of whoever gave a piece of feedback; authors without a name are one author per source."""

STRONG = ("verifier", "reviewer", "correction", "outcome")
"""Label sources that may put an interaction into a suite, if the policy names them."""

SAYS = "says"
"""Kind of a derived sign: what the user's next message says about the answer, with its value true or false."""

_RANK: dict[str, int] = {
    "verifier": 6,
    "reviewer": 5,
    "correction": 4,
    "outcome": 3,
    "thumb": 2,
    "implicit": 1,
    "judge": 0,
}
_TEXT_KINDS = ("label", "correction")
_SAME_SAY = {"label": "text", "correction": "text", "rating": "thumb"}  # kinds by which one author says one thing
_BEST_RATING, _WORST_RATING = 5, 1


@dataclass(frozen=True)
class Evidence:
    """One piece of evidence.

    Args:
        good: whether it calls the model's answer right.
        text: what the answer should have been; "" when it does not say.
        kind: the feedback's kind, for the reason.
        edited: the text is the model's answer with some changes, so that the two make a pair.
    """

    source: Source
    good: bool
    text: str
    kind: str
    author: Author
    ts: datetime
    edited: bool = False

    @property
    def rank(self) -> int:
        """Strength; strong evidence of equal rank that disagrees is a conflict."""
        return _RANK[self.source]


def current(rows: Iterable[Row], now: datetime) -> list[Row]:
    """The feedback that counts at ``now``: no later one, none that was superseded, the latest of one author and kind.

    Only the same author, a reviewer or a verifier may supersede: else anybody could silence a reviewer. Authors
    without a name are one author per source. A rating whose scale nobody knows takes the place of nothing.
    """
    told = (row for row in rows if row["ts"] <= now and _known_scale(row))
    given = sorted(told, key=lambda row: (row["ts"], row["feedback_id"]))
    by_id = {row["feedback_id"]: row for row in given}
    gone = {
        row["supersedes"]
        for row in given
        if (old := by_id.get(row["supersedes"])) is not None
        and (author(row) == author(old) or _authority(row) > _authority(old))
    }
    latest = {
        (author(row), _SAME_SAY.get(row["kind"], row["kind"])): row for row in given if row["feedback_id"] not in gone
    }
    return sorted(latest.values(), key=lambda row: (row["ts"], row["feedback_id"]))


def read_evidence(rows: Iterable[Row], answer: str, edits: EditPolicy) -> list[Evidence]:
    """What feedback rows say about ``answer``, strongest first."""
    found = [item for row in rows if (item := _read(row, answer.strip(), edits)) is not None]
    return sorted(found, key=lambda item: (-item.rank, item.source, item.good, item.text, item.kind, item.author))


def author(row: Row) -> Author:
    """Who gave a piece of feedback."""
    return row["source"], row["author_key"]


def _read(row: Row, answer: str, edits: EditPolicy) -> Evidence | None:
    kind, value = row["kind"], json.loads(row["value"]) if row["value"] else None
    good = _opinion(kind, value)
    text = row["text"].strip()
    edited = False
    if kind in _TEXT_KINDS:
        text = text or _as_text(value)
        good = text == answer
        if kind == "correction" and not good and answer:
            distance = Levenshtein.normalized_distance(text, answer)
            good = distance < edits.accept_below
            edited = not good and distance <= edits.rewrite_above
    elif kind != "outcome":
        text = ""  # beside a thumb or a rating, a text is a remark
    elif text:
        good = text == answer
    if good is None or (kind in _TEXT_KINDS and not text):
        return None
    return Evidence(_source(row, kind), good, text, kind, author(row), row["ts"], edited)


def _source(row: Row, kind: str) -> Source:
    given = row["source"]
    if given in ("verifier", "reviewer", "judge"):
        return cast(Source, given)
    if kind in ("regenerate", "accept", SAYS):
        return "implicit"
    if kind in _TEXT_KINDS:
        return "correction" if given == "user" else "implicit"
    return "outcome" if kind == "outcome" else "thumb" if given == "user" else "implicit"


def _opinion(kind: str, value: Any) -> bool | None:
    """Good, bad, or None for what does not say. Ratings count at the ends of their scale only."""
    if kind in ("thumb", "outcome", SAYS):
        return value if isinstance(value, bool) else None
    if kind == "rating":
        rating, (worst, best) = _rating(value)
        return None if rating is None or worst == best else {best: True, worst: False}.get(rating)
    return {"accept": True, "regenerate": False}.get(kind)


def _rating(value: Any) -> tuple[float | None, tuple[float, float]]:
    """A rating and the ends of its scale, equal if unknown: 1 to 5, or as ``{"value": 8, "scale": [1, 10]}`` says."""
    if isinstance(value, dict):
        worst, best = value.get("scale") or (0, 0)
        return value.get("value"), (worst, best)
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return (value, (_WORST_RATING, _BEST_RATING)) if plain else (None, (0, 0))


def _known_scale(row: Row) -> bool:
    if row["kind"] != "rating":
        return True
    _, (worst, best) = _rating(json.loads(row["value"]) if row["value"] else None)
    return worst != best


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return json.dumps(value) if isinstance(value, bool | int | float) else ""


def _authority(row: Row) -> int:
    return {"verifier": 2, "reviewer": 1}.get(row["source"], 0)
