"""OpenAI chat JSON lines, in the three shapes that people export.

- ``{"request": {messages, ...}, "response": {choices, ...}}``: a logged call;
- ``{"messages": [...], "choices": [...]}`` or ``{"messages": [...], "response": ...}``: a stored completion with its
  input beside it; ``response`` may be a completion, a message or the answer's text;
- ``{"messages": [..., {"role": "assistant", ...}]}``: a fine-tuning row, whose last assistant message is the answer.

A fine-tuning row becomes an interaction only: nobody has judged it here, so it makes no label by itself
(``flywheel train --data`` trains on such a file directly). A row whose answer has weight 0 and a preference row are
skipped.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.formats import chat
from flywheel.intake.formats.registry import log_format
from flywheel.intake.records import BadRecord, Choice, Context, InteractionRecord, Json, Record, SkippedRecord

_PREFERENCE = ("preferred_output", "preferred_completion")


def _matches(record: Json) -> bool:
    if isinstance(record.get("request"), dict):
        return "response" in record
    return "messages" in record or "choices" in record or any(key in record for key in _PREFERENCE)


@log_format("openai_chat", _matches)
def parse(record: Json, context: Context) -> Record:
    """Read one record of any of the three shapes."""
    if any(key in record for key in _PREFERENCE):
        raise SkippedRecord("preference row")
    if isinstance(record.get("request"), dict):
        request, response = record["request"], record.get("response")
        if not isinstance(response, dict):
            raise BadRecord("the response is not an object")
        return _call(record, request, response, chat.messages(request.get("messages")))
    if "choices" in record:
        return _call(record, record, record, chat.messages(record.get("messages")))
    if "response" in record:
        return _call(record, record, _completion(record["response"]), chat.messages(record.get("messages")))
    return _fine_tuning_row(record)


def _call(record: Json, request: Json, response: Json, messages: list[Json]) -> InteractionRecord:
    metadata = {**chat.mapping(record.get("metadata")), **chat.mapping(request.get("metadata"))}
    model = chat.text(request.get("model")) or ""
    return InteractionRecord(
        call_id=chat.call_id(chat.first(response.get("id"), record.get("id"))),
        ts=chat.first(*(record.get(key) for key in ("timestamp", "ts", "created_at")), response.get("created")),
        messages=messages,
        choices=chat.choices(response.get("choices")),
        tools=chat.tools(request.get("tools")),
        params={} if request is record else chat.params(request),
        conversation_id=chat.identifier(chat.first(metadata.get("conversation_id"), record.get("conversation_id"))),
        user=chat.text(chat.first(request.get("user"), record.get("user"))),
        model=model,
        release=chat.text(response.get("model")) or model,
        stream=request.get("stream") is True,
        usage=chat.mapping(response.get("usage")),
        latency_ms=chat.number(record.get("latency_ms")),
        metadata=metadata,
    )


def _completion(response: Any) -> Json:
    """A completion from a completion, a message or a text."""
    if isinstance(response, str):
        response = {"role": "assistant", "content": response}
    if isinstance(response, dict) and "choices" in response:
        return response
    if isinstance(response, dict) and "content" in response:
        return {"choices": [{"index": 0, "message": response, "finish_reason": None}]}
    raise BadRecord("the response has no answer")


def _fine_tuning_row(record: Json) -> InteractionRecord:
    rows = record.get("messages")
    messages = chat.messages(rows)
    last = max((place for place, item in enumerate(messages) if item["role"] == "assistant"), default=0)
    if not last:
        raise BadRecord("no assistant answer after a message")
    if isinstance(rows, list) and rows[last].get("weight") == 0:
        raise SkippedRecord("answer with weight 0")
    return InteractionRecord(
        call_id=chat.call_id(record.get("id")),
        ts=chat.first(*(record.get(key) for key in ("timestamp", "ts", "created_at", "created"))),
        messages=messages[:last],
        choices=[Choice(0, messages[last], None)],
        tools=chat.tools(record.get("tools")),
        user=chat.text(record.get("user")),
        metadata=chat.mapping(record.get("metadata")),
    )
