"""TensorZero's stored inputs and outputs as chat messages: content blocks of its present and its older versions."""

from __future__ import annotations

import json
from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat
from flywheel.intake.formats.pieces import Piece, answer_of, call, messages_of, result, text
from flywheel.intake.records import BadRecord, Json


def messages(value: Any) -> list[Json]:
    """The messages of an ``input``: ``{"system": ..., "messages": [...]}``. Raises BadRecord for anything else."""
    if not isinstance(value, dict):
        raise BadRecord("the input is not an object")
    system = value.get("system")
    head = [] if system in (None, "", {}) else [chat.message({"role": "system", "content": _written(system)})]
    rows = value.get("messages")
    if not isinstance(rows, list) or not rows:
        raise BadRecord("no messages")
    found = []
    for row in rows:
        if not isinstance(row, dict):
            raise BadRecord("a message is not an object")
        role, content = row.get("role"), row.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "value": content}]
        pieces = [_piece(block) for block in blocks]
        found += [answer_of(pieces)] if role == "assistant" else messages_of(role, pieces)
    return head + found


def answer(output: Any) -> Json:
    """The assistant message of an ``output``: content blocks, or a JSON function's ``{"raw", "parsed"}``.

    Either may be JSON text. Raises BadRecord when it says nothing and calls nothing.
    """
    found = inner(output)
    if isinstance(found, dict) and "raw" in found:
        said = chat.first(found.get("raw"), found.get("parsed"))
        if said is None:
            raise BadRecord("no answer")
        return chat.message({"role": "assistant", "content": _written(said)})
    if not isinstance(found, list):
        raise BadRecord("the output is neither content blocks nor a JSON answer")
    pieces = [_piece(block) for block in found]
    if not any(kind != "reasoning" for kind, _ in pieces):
        raise BadRecord("no answer")
    return answer_of(pieces)


def _piece(block: Any) -> Piece:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in ("text", "raw_text", "template"):
        said = chat.first(block.get("text"), block.get("value"), block.get("arguments"))
        if said is None:
            raise BadRecord("a text block holds nothing")
        return text(_written(said))
    if kind == "tool_call":
        # The raw arguments are the model's own text; the others are what could be read of it, or null.
        arguments = chat.first(block.get("raw_arguments"), block.get("arguments"))
        return call(block.get("id"), chat.first(block.get("raw_name"), block.get("name")), arguments)
    if kind == "tool_result":
        return result(block.get("id"), block.get("result"))
    if kind == "thought":
        return "reasoning", chat.text(block.get("text")) or ""
    if not isinstance(kind, str):
        raise BadRecord("a content block is not an object with a type")
    return "part", block


def _written(value: Any) -> str:
    """A text as it stands; anything else, such as a template's arguments, as JSON text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
