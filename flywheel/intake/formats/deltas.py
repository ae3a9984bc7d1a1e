"""The chunks of a streamed chat completion, joined delta by delta into its choices.

Tool-call deltas belong together by ``index``. Providers that leave the index out, or give every call the same one, are
read by ``id``; a delta with neither goes on with the last call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat
from flywheel.intake.records import BadRecord, Json

_TEXTS = ("content", "refusal", "reasoning_content")
_NO_INDEX = -1


def joined(chunks: Iterable[Json]) -> list[Json]:
    """The choices of a completion in order of their index. Raises BadRecord for a delta that is not an object."""
    choices = Choices()
    for chunk in chunks:
        choices.add(chunk)
    return choices.whole()


class Choices:
    """The choices of a completion, growing chunk by chunk."""

    def __init__(self) -> None:
        self._answers: dict[int, _Answer] = {}

    def add(self, chunk: Json) -> None:
        """Take in the next chunk. Raises BadRecord for a delta that is not an object."""
        choices = chunk.get("choices")
        for place, choice in enumerate(choices if isinstance(choices, list) else []):
            if not isinstance(choice, dict):
                raise BadRecord("a choice of a stream's chunk is not an object")
            self._answers.setdefault(chat.whole_number(choice.get("index"), place), _Answer()).add(choice)

    def whole(self) -> list[Json]:
        """What has come so far, in order of the index."""
        return [{"index": index, **self._answers[index].whole()} for index in sorted(self._answers)]


class _Answer:
    """One choice, growing."""

    def __init__(self) -> None:
        self.role: str | None = None
        self.finish_reason: Any = None
        self.texts: dict[str, list[str]] = {}
        self.parts: list[Any] = []
        self.function_call: Json = {}
        self.calls: list[_Call] = []

    def add(self, choice: Json) -> None:
        self.finish_reason = chat.first(choice.get("finish_reason"), self.finish_reason)
        delta = choice.get("delta", {"content": choice.get("text")})  # a text completion has no deltas
        if delta is None:
            return
        if not isinstance(delta, dict):
            raise BadRecord("a delta of a stream's chunk is not an object")
        self.role = self.role or chat.text(delta.get("role"))
        pieces = {**delta, "reasoning_content": chat.first(delta.get("reasoning_content"), delta.get("reasoning"))}
        for name in _TEXTS:
            if isinstance(pieces.get(name), str):
                self.texts.setdefault(name, []).append(pieces[name])
        if isinstance(delta.get("content"), list):
            self.parts.extend(delta["content"])
        _join(self.function_call, chat.mapping(delta.get("function_call")))
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            if not isinstance(call, dict):
                raise BadRecord("a tool call of a stream's chunk is not an object")
            self._call(call)

    def whole(self) -> Json:
        message: Json = {"role": self.role or "assistant"}
        message |= {name: "".join(pieces) for name, pieces in self.texts.items()}
        if self.parts:
            said = message.get("content")
            message["content"] = [*([{"type": "text", "text": said}] if said else []), *self.parts]
        if self.function_call:
            message["function_call"] = self.function_call
        if self.calls:
            indexes = [call.index for call in self.calls]
            ordered = len(set(indexes)) == len(indexes) and min(indexes) >= 0
            calls = sorted(self.calls, key=lambda call: call.index) if ordered else self.calls
            message["tool_calls"] = [call.whole() for call in calls]
        return {"message": message, "finish_reason": self.finish_reason}

    def _call(self, delta: Json) -> None:
        index, own = chat.whole_number(delta.get("index"), _NO_INDEX), chat.text(delta.get("id"))
        found = self._find(index, own, chat.mapping(delta.get("function")))
        if found is None:
            found = _Call(index)
            self.calls.append(found)
        found.add(delta)

    def _find(self, index: int, own: str | None, function: Json) -> _Call | None:
        """The call that a delta goes on with; None when it begins one."""
        same = [call for call in self.calls if index == _NO_INDEX or call.index in (_NO_INDEX, index)]
        if own is not None:
            named = [call for call in same if call.id == own]
            unnamed = [call for call in same if call.id is None and index != _NO_INDEX]
            return next(reversed(named or unnamed), None)
        if same and function.get("name") and function.get("arguments") and same[-1].is_whole:
            return None  # after a whole call another name with arguments is the next call, not more of this one
        return same[-1] if same else None


class _Call:
    """One tool call, growing."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.fields: Json = {}
        self.function: Json = {}

    def add(self, delta: Json) -> None:
        self.id = self.id or chat.text(delta.get("id"))
        self.fields |= {key: value for key, value in delta.items() if key != "index" and value not in (None, "")}
        _join(self.function, chat.mapping(delta.get("function")))

    @property
    def is_whole(self) -> bool:
        """Whether the arguments so far are an object from brace to brace."""
        return isinstance(inner(self.function.get("arguments")), dict)

    def whole(self) -> Json:
        return {"type": "function", **self.fields, "function": self.function}


def _join(function: Json, delta: Json) -> None:
    """Add a delta to a function: its name comes in pieces or every time in full, its arguments come in pieces."""
    name, arguments = delta.get("name"), delta.get("arguments")
    if isinstance(name, str) and name and name != function.get("name"):
        function["name"] = function.get("name", "") + name
    if isinstance(arguments, str) and isinstance(function.get("arguments", ""), str):
        function["arguments"] = function.get("arguments", "") + arguments
    elif arguments is not None:
        function.setdefault("arguments", arguments)
