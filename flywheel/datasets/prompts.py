"""The text of a prompt: what two prompts are compared by, and what is put into an example.

Two views of the same messages, for two questions:

- ``prompt_text`` asks "would a person call these the same request?". It is the normalised text of every message that
  is not a system message. System messages are left out because a task's prompt is in every row and would make all of
  them near copies. Earlier turns are kept, so that a short last turn ("yes please") means what it answers.
- ``prompt_key`` asks "would the model see the same input?". It covers system messages, roles, tool calls and tools,
  so that a different instruction over the same words is no contradiction.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.store.digests import canonical_json, digest

Message = dict[str, Any]

KEPT_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")
"""What of a message reaches an example; anything else a client sent along is transport."""

SYSTEM_ROLES = ("system", "developer")

_TURN = " ¶ "


def normalise(text: str) -> str:
    """Unicode-compatible, case-folded, with runs of white space as one blank; digits and punctuation stay.

    Idempotent: the compatibility caseless form of the Unicode Standard, definition D146. Lone surrogates, which no
    UTF-8 text can hold, become ``?``.
    """
    folded = unicodedata.normalize("NFD", text.encode("utf-8", "replace").decode("utf-8")).casefold()
    folded = unicodedata.normalize("NFKC", folded).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def clean(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages with only the fields a chat template reads, in a fixed order, absent ones left out."""
    return [{field: m[field] for field in KEPT_FIELDS if m.get(field) is not None} for m in messages]


def with_prompt(messages: Sequence[Message], prompt: str | None) -> list[Message]:
    """Put the task's system prompt first, unless the messages bring a system or developer message of their own."""
    if not prompt or any(m.get("role") in SYSTEM_ROLES for m in messages):
        return list(messages)
    return [{"role": "system", "content": prompt}, *messages]


def prompt_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Normalised text of the messages before an answer, for clustering and exact-copy checks; see the module.

    Args:
        messages: what the model was sent, the answer not among them. When all are system messages, they count.
    """
    said = [m for m in messages if m.get("role") not in SYSTEM_ROLES] or list(messages)
    return normalise(_TURN.join(_content(m) for m in said))


def prompt_key(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> str:
    """Digest of the model's whole input, equal for inputs that differ only in case, spacing or Unicode form."""
    return digest([[[m.get("role"), normalise(_content(m))] for m in messages], list(tools or [])])


def target_text(message: Mapping[str, Any]) -> str:
    """The text by which two answers are the same: content without outer white space, and tool calls as JSON."""
    return unicodedata.normalize("NFC", _content(message)).strip()


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = [content] if isinstance(content, str) else [_part(part) for part in content or []]
    if message.get("tool_calls"):
        parts.append(canonical_json([_call(call) for call in message["tool_calls"]]).decode())
    return " ".join(part for part in parts if part)


def _part(part: Any) -> str:
    """A text part's text; any other part (a picture, a file) stands for itself by its digest."""
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    return digest(part)


def _call(call: Any) -> Any:
    """A tool call without its id, which is random."""
    return {k: v for k, v in call.items() if k != "id"} if isinstance(call, Mapping) else call
