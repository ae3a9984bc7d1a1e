"""Feedback inside logs: how formats that let people name their scores share one reading of them.

A name is read as words (``userThumb``, ``user-thumb`` and ``User thumb`` are alike). It must say what a score means,
because nothing else does: 1 is the best answer under `thumbs`, the worst under `stars` and a fault under
`hallucination`. So

- a yes or no is a thumb under a name of approval (helpful, correct, feedback ...), an outcome under a name of success
  (resolved, converted ...), and otherwise a comment, which says nothing about the answer;
- a number is a thumb under thumb, like or vote when it is 1, 0 or -1; a rating from 1 to 5 under stars; and otherwise
  a rating whose scale nobody knows, which is kept and labels nothing;
- a category is the right answer only under label, expected, reference or the like, or under the task's own name; a
  thumb when name and category are of approval (`correctness: incorrect`); and otherwise a comment.
"""

from __future__ import annotations

import re
from typing import Any

from flywheel.intake.records import FeedbackRecord
from flywheel.store.digests import digest

Target = tuple[str, str]
Said = tuple[str, Any]
"""A feedback kind and its value."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_VOTE = _set("thumb thumbs like liked upvote vote")
_APPROVAL = _VOTE | _set(
    "helpful useful correct correctness accurate accuracy good quality feedback rating approved approval accepted"
    " acceptable acceptance satisfied satisfaction pass passed verdict"
)
_SUCCESS = _set("outcome success successful resolved solved completed converted conversion")
_ANSWER = _set("label expected reference truth gold ideal")
_NEGATION = _set("not no non never un without dislike disliked bad wrong false")
_GOOD = _set("true yes good correct right pass passed positive up helpful accepted approved like liked")
_BAD = _set("false no not bad incorrect wrong fail failed negative down unhelpful rejected dislike disliked")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")


def feedback(
    fmt: str,
    own_id: str | None,
    target: Target,
    said: Said,
    *,
    ts: Any,
    source: str,
    text: str = "",
    author: str | None = None,
) -> FeedbackRecord:
    """One piece of feedback found in a log of format ``fmt``.

    Its id covers what was said and when: the same score exported twice is one, and an edited one is another, which
    outranks the first by its time.

    Args:
        own_id: the source's own id.
        target: kind and name, as `FeedbackRecord` has them.
    """
    kind, value = said
    own = digest([own_id, *target, kind, value, text, source, author, ts])
    return FeedbackRecord(f"{fmt}-{own[:32]}", ts, *target, kind, value, text, source, author, None, "")


def scale(value: float, worst: float, best: float) -> Said:
    """A rating on a known scale."""
    return "rating", {"value": value, "scale": [worst, best]}


def boolean(name: str, value: bool) -> Said:
    """What a yes or no under this name says."""
    words = _words(name)
    if not words & _NEGATION:
        if words & _SUCCESS:
            return "outcome", value
        if words & _APPROVAL:
            return "thumb", value
    return "comment", {"name": name, "value": value}


def number(name: str, value: float) -> Said:
    """What a number under this name says."""
    words = _words(name)
    if words & _VOTE and not words & _NEGATION and value in (1, 0, -1):
        return "thumb", value > 0
    if words & {"star", "stars"}:
        return scale(value, 1, 5)
    return "rating", {"name": name, "value": value}


def category(name: str, value: str, task: str) -> Said:
    """What a category under this name says; as a label its text is the value."""
    words = _words(name)
    if name == task or words & _ANSWER:
        return "label", value
    said = _words(value)
    good, bad = bool(said & _GOOD), bool(said & _BAD)
    if words & _APPROVAL and not words & _NEGATION and good | bad:
        return "thumb", not bad
    return "comment", {"name": name, "value": value}


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}
