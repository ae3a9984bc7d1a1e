"""Items of OpenAI's Responses API as chat messages.

What one turn of the assistant consists of (reasoning, words, calls) becomes one message. Tools that the provider ran
itself belong to none.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.formats import chat
from flywheel.intake.formats.pieces import Piece, answer_of, call, messages_of, result, text
from flywheel.intake.records import BadRecord, Json


def items_messages(items: list[Any]) -> list[Json]:
    """The messages of input items. Raises BadRecord for items that are not objects or refer to others."""
    found: list[Json] = []
    held: list[Piece] = []
    for item in [*items, None]:
        if item is not None and not isinstance(item, dict):
            raise BadRecord("an input item is not an object")
        role = _role(item) if item is not None else None
        spoken = (
            item is not None and item.get("type", "message") == "message" and any(kind == "text" for kind, _ in held)
        )
        if held and (role != "assistant" or spoken):
            found.append(answer_of(held))
            held = []
        if item is None:
            break
        pieces = _pieces(item)
        if role == "assistant":
            held += pieces
        elif pieces:
            found += messages_of(role, pieces)
    return found


def output_message(output: Any) -> Json:
    """The one assistant message of a response's output. Raises BadRecord when it says nothing and calls nothing."""
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        raise BadRecord("no output in the response")
    pieces = [piece for item in output for piece in _pieces(item)]
    if not any(kind != "reasoning" for kind, _ in pieces):
        raise BadRecord("no answer")
    return answer_of(pieces)


def kinds(items: Any) -> list[str]:
    """The types of items."""
    return [kind for item in _list(items) if isinstance(item, dict) and (kind := chat.text(item.get("type")))]


def _role(item: Json) -> Any:
    kind = item.get("type", "message")
    if kind == "message":
        return item.get("role")
    return "tool" if isinstance(kind, str) and kind.endswith("_output") else "assistant"


def _pieces(item: Json) -> list[Piece]:
    kind = item.get("type", "message")
    if kind == "message":
        content = item.get("content")
        if isinstance(content, str):
            return [text(content)]
        if not isinstance(content, list):
            raise BadRecord("a message's content is neither text nor parts")
        return [_part(part) for part in content]
    if kind == "function_call":
        return [call(item.get("call_id"), item.get("name"), item.get("arguments"))]
    if kind == "custom_tool_call":
        own = chat.present({"id": chat.identifier(item.get("call_id"))})
        custom = chat.present({key: item.get(key) for key in ("name", "input")})
        return [("call", {**own, "type": "custom", "custom": custom})]
    if kind in ("function_call_output", "custom_tool_call_output"):
        return [result(item.get("call_id"), item.get("output"))]
    if kind == "reasoning":
        said = [*_list(item.get("content")), *_list(item.get("summary"))]
        return [
            text(part["text"], "reasoning") for part in said if isinstance(part, dict) and chat.text(part.get("text"))
        ]
    if kind == "item_reference":
        raise BadRecord("the input refers to items that the record does not hold")
    return []  # a tool that the provider ran itself


def _part(part: Any) -> Piece:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text", "text"):
        return text(part.get("text"))
    if kind == "refusal":
        return text(part.get("refusal"), "refusal")
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        image = chat.present({"url": part["image_url"], "detail": part.get("detail")})
        return "part", {"type": "image_url", "image_url": image}
    if kind is None:
        raise BadRecord("a content part is not an object with a type")
    return "part", part


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
