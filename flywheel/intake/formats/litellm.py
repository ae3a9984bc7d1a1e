"""LiteLLM's StandardLoggingPayload: one object per call, as its callbacks and its S3, GCS and file loggers write it.

A retry or fallback is a record of its own with the same ``trace_id``. The interaction's id is the payload's ``id``,
which is the id of the response that the client got; ``litellm_call_id`` (the header ``x-litellm-call-id``) and
``litellm_trace_id`` lie in the metadata, where feedback may name them. A failed call has no response: LiteLLM gives all
attempts one id, so its interaction id comes from its content. The payload has no feedback.

``response_time`` is the time to the first token for streams; the latency here is the end minus the start.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat, sse
from flywheel.intake.formats.freeform import answer, prompt
from flywheel.intake.formats.openai_items import items_messages, output_message
from flywheel.intake.formats.registry import log_format
from flywheel.intake.records import BadRecord, Choice, Context, InteractionRecord, Json, SkippedRecord
from flywheel.intake.times import elapsed_ms

_RESPONSES = ("responses", "aresponses")
_CALLS = ("completion", "acompletion", "text_completion", "atext_completion", "anthropic_messages", *_RESPONSES)
_REDACTED = "redacted-by-litellm"
_CUT = ("truncated by litellm", "litellm_truncated")
_CONVERSATIONS = ("conversation_id", "conversation", "session_id", "thread_id")


def _matches(record: Json) -> bool:
    return "call_type" in record and ("startTime" in record or "litellm_call_id" in record)


@log_format("litellm", _matches, "`call_type` with `startTime` or `litellm_call_id`")
def parse(record: Json, context: Context) -> InteractionRecord:
    """Read one payload. One whose model group or a tag is another configured task is skipped."""
    if record.get("call_type") not in _CALLS:
        raise SkippedRecord("not a model call")
    about = chat.mapping(record.get("metadata"))
    if about.get("is_silent_experiment"):
        raise SkippedRecord("shadow experiment")
    tags = record.get("request_tags")
    chat.check_task(context, record.get("model_group"), *(tags if isinstance(tags, list) else ()))
    failed = record.get("status") == "failure"
    messages, offered = _sent(record)
    found = [] if failed else _answers(record.get("response"))
    _check_whole([*messages, *(choice.message for choice in found)])
    given = chat.mapping(about.get("requester_metadata"))
    parameters = chat.mapping(inner(record.get("model_parameters")))
    session = (given.get(key) for key in _CONVERSATIONS)
    model = chat.text(record.get("model")) or ""
    own = {
        "litellm_call_id": chat.first(record.get("litellm_call_id"), record.get("call_id")),
        "litellm_trace_id": record.get("trace_id"),
        "litellm_tags": tags,
        "litellm_error": chat.mapping(record.get("error_information")).get("error_class") if failed else None,
    }
    return InteractionRecord(
        call_id=None if failed else chat.call_id(record.get("id")),
        ts=chat.first(record.get("startTime"), record.get("endTime")),
        messages=messages,
        choices=found,
        tools=offered or chat.tools(parameters.get("tools")),
        params=chat.params(parameters),
        conversation_id=chat.identifier(chat.first(*session, record.get("session_id"))),
        user=chat.user(
            record.get("end_user"),
            *(parameters.get(key) for key in chat.USERS),
            about.get("user_api_key_end_user_id"),
        ),
        model=chat.text(record.get("model_group")) or model,
        release=model,
        stream=record.get("stream") is True,
        status="error" if failed else "ok",
        cache_hit=chat.truth(record.get("cache_hit")) is True,
        usage=chat.present({key: record.get(key) for key in ("prompt_tokens", "completion_tokens", "total_tokens")}),
        latency_ms=elapsed_ms(record.get("startTime"), record.get("endTime")),
        cost=chat.number(record.get("response_cost")),
        metadata=given | chat.present(own),
    )


def _sent(record: Json) -> tuple[list[Json], list[Any] | None]:
    """Messages and tools; of the Responses API ``messages`` holds the input's items."""
    items = inner(record.get("messages"))
    if record.get("call_type") in _RESPONSES and isinstance(items, list) and items:
        return items_messages(items), None
    return prompt(record.get("messages"))


def _answers(response: Any) -> list[Choice]:
    """The choices of a completion, also of a text completion, or of whatever else `answer` reads."""
    body = sse.whole(inner(response))
    if isinstance(body, dict):
        if body.get("output"):
            return [Choice(0, output_message(body["output"]), None)]
        if body.get("text") == _REDACTED:
            raise SkippedRecord("redacted")
        rows = body.get("choices")
        if isinstance(rows, list) and any(isinstance(row, dict) and isinstance(row.get("text"), str) for row in rows):
            return chat.choices([{"message": {"content": row.get("text")}} | row for row in map(chat.mapping, rows)])
        if "choices" not in body and not isinstance(body.get("role"), str):
            raise BadRecord("no choices in the response")
    if not (found := answer(body)):
        raise BadRecord("no answer")
    return found


def _check_whole(messages: list[Json]) -> None:
    """Refuse what the logger has blackened or cut: it is not what the model read or said."""
    for message in messages:
        content = message["content"]
        if content == _REDACTED:
            raise SkippedRecord("redacted")
        if isinstance(content, str) and any(mark in content for mark in _CUT):
            raise BadRecord("cut short by the logger")
