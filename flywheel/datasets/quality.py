"""Rows that teach nothing good whoever approved of them: broken text, loops, echoes, calls that no tool can read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from flywheel.datasets.prompts import normalise
from flywheel.datasets.rows import KTO, Row

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BROKEN_SHARE = 0.01
"""Share of characters that could not be decoded from which a text counts as broken."""

LONGEST_LOOP, LOOP_TIMES, LOOP_WORDS = 12, 4, 16
"""A run of up to 12 words that comes four times, one directly behind the other, over at least 16 words: a model that
could not stop."""

SHORTEST_ECHO = 20
"""Characters; a shorter answer may well be what was asked."""


def screen(rows: Iterable[Row]) -> tuple[list[Row], Counter[str]]:
    """The rows without faults, and how many have which.

    Reasons: ``broken_text``, ``repetitive_answer``, ``echo`` (the answer repeats the last message), ``broken_call`` (a
    tool call whose arguments are no JSON object). An answer that was found bad may be all that but broken.
    """
    kept: list[Row] = []
    dropped: Counter[str] = Counter()
    for row in rows:
        fault = _fault(row)
        if fault:
            dropped[fault] += 1
        else:
            kept.append(row)
    return kept, dropped


def _fault(row: Row) -> str:
    *prompt, answer = row.messages
    said = answer.get("content")
    text = said if isinstance(said, str) else ""
    if any(_broken(message.get("content")) for message in row.messages):
        return "broken_text"
    if row.kind == KTO and not row.desirable:
        return ""
    if loops(text):
        return "repetitive_answer"
    asked = prompt[-1].get("content") if prompt else None
    if len(text) >= SHORTEST_ECHO and isinstance(asked, str) and normalise(asked) == normalise(text):
        return "echo"
    if any(not _readable(call) for call in answer.get("tool_calls") or []):
        return "broken_call"
    return ""


def loops(text: str) -> bool:
    """Whether the same words come again and again, one run directly behind the other."""
    words = text.split()
    for period in range(1, LONGEST_LOOP + 1):
        repeated = 0
        for word, later in zip(words, words[period:], strict=False):
            repeated = repeated + 1 if word == later else 0
            if repeated + period >= max(LOOP_TIMES * period, LOOP_WORDS):
                return True
    return False


def _broken(content: Any) -> bool:
    return isinstance(content, str) and content.count(REPLACEMENT) > BROKEN_SHARE * len(content)


def _readable(call: Any) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if not isinstance(arguments, str):
        return isinstance(arguments, Mapping)
    try:
        return isinstance(json.loads(arguments or "{}"), dict)
    except (ValueError, RecursionError):
        return False
