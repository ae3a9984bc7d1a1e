"""The parts that all chat-completion logs share: messages, choices, numbers and ids, checked field by field."""

from __future__ import annotations

import math
from typing import Any

from flywheel.intake.records import BadRecord, Choice, Context, Json, SkippedRecord
from flywheel.store.digests import canonical_json

MAX_ID = 512
"""Longest id in characters; what the gateway accepts, it can also take in."""

MAX_CALL_ID = 120
"""Longest id of a call: the registry's columns hold 128, and choices append ``#<k>``."""

_MESSAGE_KEYS = frozenset(
    {
        "role",
        "content",
        "name",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "refusal",
        "reasoning_content",
        "audio",
    }
)
USERS = ("user", "safety_identifier")
"""The fields of a request to OpenAI's APIs that name the user."""

_NOT_PARAMS = frozenset({"messages", "tools", "model", "stream", *USERS, "metadata"})


def messages(value: Any) -> list[Json]:
    """The request's messages, cleaned. Raises BadRecord when there are none or one has no role."""
    if not isinstance(value, list) or not value:
        raise BadRecord("no messages")
    return [message(item) for item in value]


def message(value: Any, role: str | None = None) -> Json:
    """One message with the keys that matter; tool arguments become JSON text and an absent content ``""``.

    Args:
        role: used when the message names none.
    """
    if not isinstance(value, dict):
        raise BadRecord("a message is not an object")
    if len(value) == 2 and type(value.get("content")) is str and type(own := value.get("role")) is str and own:
        return value  # as nearly all are
    found = {key: one for key, one in value.items() if one is not None and key in _MESSAGE_KEYS}
    found.setdefault("role", role)
    if not isinstance(found["role"], str) or not found["role"]:
        raise BadRecord("a message has no role")
    # Stored completions put multimodal input beside the text; both forms mean the same to a chat template.
    content = value.get("content_parts") or found.get("content")
    if content is not None and not isinstance(content, str | list):
        raise BadRecord("a message's content is neither text nor parts")
    if "tool_calls" in found:
        found["tool_calls"] = _tool_calls(found["tool_calls"])
    if isinstance(found.get("function_call"), dict):
        found["function_call"] = _function(found["function_call"])
    found["content"] = "" if content is None else content
    return found


def choices(value: Any) -> list[Choice]:
    """The answers of a completion, in order of their index. Raises BadRecord when there are none."""
    if not isinstance(value, list) or not value:
        raise BadRecord("no choices in the response")
    found = []
    for place, item in enumerate(value):
        if not isinstance(item, dict) or not isinstance(given := item.get("message"), dict):
            raise BadRecord("a choice has no message")
        index = whole_number(item.get("index"), place)
        found.append(Choice(index, message(given, "assistant"), text(item.get("finish_reason"))))
    if len(found) > 1:
        if len({choice.index for choice in found}) < len(found):
            raise BadRecord("two choices have the same index")
        found.sort(key=lambda choice: choice.index)
    return found


def params(request: Json) -> Json:
    """Sampling and other parameters: what a request says besides its messages, tools and addressing."""
    return {key: value for key, value in request.items() if key not in _NOT_PARAMS}


def tools(value: Any) -> list[Any] | None:
    """The tools offered, or None."""
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise BadRecord("tools is not a list")
    return value


def mapping(value: Any) -> Json:
    """An object, or an empty one when the field is missing or something else."""
    return value if isinstance(value, dict) else {}


def call_id(value: Any) -> str | None:
    """The id of a call, as `identifier` reads it."""
    return identifier(value, MAX_CALL_ID)


def identifier(value: Any, longest: int = MAX_ID) -> str | None:
    """An id as text; numbers count, empty means none. Raises BadRecord when it is too long to store."""
    if type(value) is int:
        value = str(value)
    if not value or type(value) is not str:
        return None
    if len(value) > longest:
        raise BadRecord("an id is too long")
    return value


def user(*values: Any) -> str | None:
    """The first of the values that names a user; many a log holds the number of one."""
    for value in values:
        if value and type(value) is str:
            return value
        if type(value) is int:
            return str(value)
    return None


def text(value: Any) -> str | None:
    """A non-empty text, or None for everything else."""
    return value if value and isinstance(value, str) else None


def number(value: Any) -> float | None:
    """A finite number, also when written as text, or None."""
    if value is None or isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def whole_number(value: Any, default: int) -> int:
    """A whole number from 0 to a million, also when written as text, or ``default``."""
    if type(value) is int and 0 <= value <= 1e6:
        return value
    found = number(value)
    return int(found) if found is not None and found == int(found) and 0 <= found <= 1e6 else default


def truth(value: Any) -> bool | None:
    """A boolean, also as 1 and 0 or in words, or None."""
    if isinstance(value, str):
        return {"true": True, "false": False, "1": True, "0": False}.get(value.strip().lower())
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def present(values: Json) -> Json:
    """The entries that say something: neither None nor empty."""
    return {key: value for key, value in values.items() if value not in (None, "", [], {})}


def check_task(context: Context, *names: Any) -> None:
    """Raise SkippedRecord when one of the names is another configured task and none is this one."""
    told = {name for name in names if isinstance(name, str)}
    if context.task not in told and told & context.tasks:
        raise SkippedRecord("other task")


def first(*values: Any) -> Any:
    """The first value that is not None."""
    for value in values:
        if value is not None:
            return value
    return None


def _tool_calls(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadRecord("tool_calls is not a list")
    calls = []
    for call in value:
        function = call.get("function") if isinstance(call, dict) else None
        calls.append({**call, "function": _function(function)} if isinstance(function, dict) else call)
    return calls


def _function(function: Json) -> Json:
    """A called function with its arguments as text: the text they were or, where a log holds them parsed, as JSON."""
    given = function.get("arguments")
    return function if isinstance(given, str | None) else {**function, "arguments": canonical_json(given).decode()}
