"""Inputs and outputs that a log keeps in one free field: a chat, a message or a text, plain or as JSON in a string."""

from __future__ import annotations

import json
import re
from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat, sse
from flywheel.intake.records import BadRecord, Choice, Json

_CHAT = re.compile(r'\s*+(?:\[\s*+)*+\{\s*+"(?:role|content|messages)"\s*+:')
"""How a chat in a string begins; one that is not JSON is no chat that the model could have read."""


def prompt(value: Any) -> tuple[list[Json], list[Any] | None]:
    """Messages and tools of a free-form input: a list of messages, a request's body, one message or a plain text.

    A string may hold any of these as JSON; one that does not is what the user said. Raises BadRecord for an object that
    is no request: how the model was shown it is not known.
    """
    found = inner(value)
    offered = None
    if isinstance(found, dict) and isinstance(found.get("messages"), list):
        offered, found = chat.tools(found.get("tools")), found["messages"]
    elif isinstance(found, dict) and isinstance(found.get("role"), str):
        found = [found]
    if isinstance(found, list):
        return chat.messages(found[0] if len(found) == 1 and isinstance(found[0], list) else found), offered
    if not chat.text(found):
        raise BadRecord("no messages" if not found else "the input is neither a chat nor text")
    if _CHAT.match(found):
        raise BadRecord("the input looks like a chat but is not JSON; it may have been cut")
    return [{"role": "user", "content": found}], None


def answer(value: Any) -> list[Choice]:
    """The choices of a free-form output: a completion or its stream, an assistant message, a list that ends in one,
    or a plain text.

    A string may hold any of these as JSON; one that does not is the answer to the letter, JSON or not. Empty when there
    is no output.
    """
    found = sse.whole(inner(value))
    if isinstance(found, list) and found and isinstance(found[-1], dict) and _is_answer(found[-1]):
        found = found[-1]
    if isinstance(found, dict) and isinstance(found.get("choices"), list):
        return chat.choices(found["choices"])
    if isinstance(found, dict) and _is_answer(found):
        return [Choice(0, chat.message(found | {"role": "assistant"}), None)]
    if found is None or found == "":
        return []
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return [Choice(0, {"role": "assistant", "content": said}, None)]


def _is_answer(value: Json) -> bool:
    return value.get("role") in ("assistant", "model", "ai") and ("content" in value or "tool_calls" in value)
