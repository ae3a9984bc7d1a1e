"""Streams put together: a response logged as its server-sent events becomes the one response that they make up.

A log may hold the parsed chunks, the raw text (``data: {...}`` lines), a list of such texts, or a list of
``{"event", "data"}`` pairs. Chunks of chat completions are joined delta by delta; of the Responses API's events, which
end with the whole response, that one is taken.
"""

from __future__ import annotations

import re
from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat
from flywheel.intake.formats.deltas import joined
from flywheel.intake.records import BadRecord, Json

_LINE_END = re.compile(r"\r\n|\r|\n")
_EVENT_LINE = re.compile(r"^data: ?(\{|\[DONE\])", re.MULTILINE)
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


def whole(value: Any) -> Any:
    """The response that a stream makes up; what is not a stream as it is. Raises BadRecord for a broken stream."""
    return assemble(value) if is_stream(value) else value


def is_stream(value: Any) -> bool:
    """Whether a logged response is a stream's raw text or its chunks."""
    if isinstance(value, str):
        return _EVENT_LINE.search(value) is not None
    return isinstance(value, list) and any(_is_chunk(item) for item in value)


def assemble(stream: Any) -> Json:
    """One response from a stream: ``{id, object, created, model, choices, usage}`` as far as its chunks name them.

    An ``error`` that the stream reports stands beside what came before it. Raises BadRecord for a chunk that is not an
    object: what it held is lost, and the answer would not be the one that was given.
    """
    chunks = [item for item in _chunks(stream) if item != "[DONE]"]
    if not all(isinstance(chunk, dict) for chunk in chunks):
        raise BadRecord("a chunk of the stream is not a JSON object")
    if any(_event(chunk).startswith("response.") for chunk in chunks):
        return _responses_api(chunks)
    found: Json = {"object": "chat.completion"}
    for chunk in chunks:
        for key in ("id", "created", "model", "system_fingerprint"):
            if chunk.get(key) not in (None, ""):
                found.setdefault(key, chunk[key])
        found |= {key: chunk[key] for key in ("usage", "error") if chunk.get(key)}
    return {**found, "choices": joined(chunks)}


def _chunks(stream: Any) -> list[Any]:
    """The chunks of a text, or of a list that holds them as objects, as texts, or under ``data``."""
    if isinstance(stream, str):
        return _events(stream)
    if all(isinstance(item, str) for item in stream):
        # Pieces as they came over the wire break anywhere; whole lines have lost their ends.
        cut = any(item.endswith(("\n", "\r")) for item in stream)
        return _events(("" if cut else "\n\n").join(stream))
    found: list[Any] = []
    for item in stream:
        data = item if not isinstance(item, dict) or "choices" in item else item.get("data", item)
        found.extend(_events(data) or [inner(data)] if isinstance(data, str) else [data])
    return found


def _events(text: str) -> list[Any]:
    """The values of a stream's text. Comments, keep-alives and fields other than ``data`` say nothing."""
    found: list[Any] = []
    data: list[str] = []
    for line in [*_LINE_END.split(text), ""]:
        if line.startswith("data:"):
            data.append(line[5:].strip())
        elif line.startswith(("{", "[DONE]")):
            data.append(line.strip())
        elif not line.strip() and data:
            found.extend(_values(data))
            data = []
    return [value for value in found if value != ""]


def _values(data: list[str]) -> list[Any]:
    """The values of one event: one spread over its lines or, where a log has lost the blank lines, one in each."""
    whole = inner("\n".join(data))
    return [whole] if isinstance(whole, dict) else [inner(line) for line in data]


def _is_chunk(item: Any) -> bool:
    if isinstance(item, str):
        return _EVENT_LINE.search(item) is not None
    if not isinstance(item, dict):
        return False
    if (chat.text(item.get("object")) or "").endswith(".chunk") or _event(item).startswith("response."):
        return True
    choices, data = item.get("choices"), item.get("data")
    if isinstance(choices, list):
        return any(isinstance(choice, dict) and ("delta" in choice or "text" in choice) for choice in choices)
    return _is_chunk(inner(data)) if isinstance(data, str | dict) else False


def _event(chunk: Json) -> str:
    """The type of a Responses API event, or ""."""
    return chat.text(chunk.get("type")) or ""


def _responses_api(events: list[Json]) -> Json:
    """The response that the last event brings; of a stream cut short, the first one with the items that were done."""
    responses = [event["response"] for event in events if isinstance(event.get("response"), dict)]
    ended = [
        event["response"] for event in events if _event(event) in _ENDS and isinstance(event.get("response"), dict)
    ]
    found: Json = ended[-1] if ended else {**(responses[0] if responses else {}), "status": "incomplete"}
    if not found.get("output"):
        done = [event.get("item") for event in events if _event(event) == "response.output_item.done"]
        found = {**found, "output": done}
    return {"object": "response", **found}
