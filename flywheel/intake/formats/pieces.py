"""Chat messages out of the typed pieces that other vendors' messages consist of: text, files, tool calls, results."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from flywheel.intake.formats import chat
from flywheel.intake.records import BadRecord, Json

Piece = tuple[str, Any]
"""A kind and what it holds: ``text``, ``reasoning`` or ``refusal`` a string; ``part`` a content part; ``call`` a tool
call; ``result`` a whole tool message."""

_CONTENT = ("text", "part")


def messages_of(role: Any, pieces: Iterable[Piece]) -> list[Json]:
    """The messages of one role that pieces make up, in order; each tool result is a message of its own.

    A single text is the content as it stands; several texts, or other parts among them, stay parts.
    """
    found: list[Json] = []
    held: list[Piece] = []
    for piece in pieces:
        if piece[0] == "result":
            found += [_message(role, held)] if held else []
            found.append(chat.message(piece[1]))
            held = []
        else:
            held.append(piece)
    return [*found, _message(role, held)] if held or not found else found


def answer_of(pieces: Iterable[Piece]) -> Json:
    """The one assistant message that pieces make up; several texts are one. Raises BadRecord when there is a result."""
    held = list(pieces)
    if any(kind == "result" for kind, _ in held):
        raise BadRecord("a tool result in the answer")
    if not any(kind == "part" for kind, _ in held):
        text = "".join(value for kind, value in held if kind == "text")
        held = [("text", text), *(piece for piece in held if piece[0] != "text")]
    return _message("assistant", held)


def call(own_id: Any, name: Any, arguments: Any) -> Piece:
    """A tool call; what is missing stays missing."""
    if not isinstance(name, str) or not name:
        raise BadRecord("a tool call has no name")
    function = {"name": name} | ({} if arguments is None else {"arguments": arguments})
    return "call", {**chat.present({"id": chat.identifier(own_id)}), "type": "function", "function": function}


def result(own_id: Any, value: Any) -> Piece:
    """A tool's result; one that is not text becomes JSON text."""
    content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "result", chat.present({"role": "tool", "tool_call_id": chat.identifier(own_id)}) | {"content": content}


def text(value: Any, kind: str = "text") -> Piece:
    """A text, or a reasoning or refusal. Raises BadRecord for anything else."""
    if not isinstance(value, str):
        raise BadRecord(f"a {kind} is not a string")
    return kind, value


def function_tools(value: Any) -> list[Any] | None:
    """Tools with their function's fields under ``function``, as chat requests have them; others stay as they are."""
    offered = chat.tools(value)
    return None if offered is None else [_function_tool(tool) for tool in offered]


def _function_tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or isinstance(tool.get("function"), dict) or not isinstance(tool.get("name"), str):
        return tool
    if tool.get("type", "function") != "function":
        return tool
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def _message(role: Any, pieces: list[Piece]) -> Json:
    found: Json = {"role": role}
    parts = [{"type": "text", "text": value} if kind == "text" else value for kind, value in pieces if kind in _CONTENT]
    only_text = len(parts) == 1 and any(kind == "text" for kind, _ in pieces)
    found["content"] = parts[0]["text"] if only_text else parts or ""
    for kind, name in (("reasoning", "reasoning_content"), ("refusal", "refusal")):
        if said := "\n".join(value for own, value in pieces if own == kind):
            found[name] = said
    if calls := [value for kind, value in pieces if kind == "call"]:
        found["tool_calls"] = calls
    return chat.message(found)
