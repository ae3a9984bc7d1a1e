"""What is noted about a call that was kept as it is: content that is not text, which only some models can read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flywheel.intake.records import InteractionRecord, Json

NOT_TEXT = "kept: content that is not text"
"""How the report counts a record with such content."""

PARTS = "flywheel_parts"
"""Where an interaction's metadata names the kinds of its content parts that are not text."""

_LONGEST = 64  # characters of a kind that are worth keeping


def content_kinds(record: InteractionRecord) -> list[str]:
    """The kinds of content in a call's messages and answers that are not text (``image_url``, ``audio``), sorted."""
    special = [one for one in record.messages if type(one.get("content")) is not str or "audio" in one]
    for choice in record.choices:
        if type(choice.message.get("content")) is not str or "audio" in choice.message:
            special.append(choice.message)
    return sorted({kind for message in special for kind in _kinds(message)}) if special else []


def _kinds(message: Json) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, list):
        yield from (kind for part in content if (kind := _kind(part)) != "text")
    if "audio" in message:
        yield "audio"


def _kind(part: Any) -> str:
    if isinstance(part, str):
        return "text"
    kind = part.get("type") if isinstance(part, dict) else None
    return kind[:_LONGEST] if isinstance(kind, str) else "unknown"
