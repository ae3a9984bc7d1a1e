"""Helicone request rows, as ``POST /v1/request/query`` and the export give them: a call, its feedback and its scores.

The rating is a thumb of the user. A score is a judge's, under its own name; ``-hcone-bool`` at the end of a name marks
a yes or no, and ``helicone-score-feedback`` repeats the rating. Properties become metadata; a session is the
conversation.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat, sse
from flywheel.intake.formats.feedback import boolean, feedback, number
from flywheel.intake.formats.openai_items import items_messages, output_message
from flywheel.intake.formats.registry import log_format
from flywheel.intake.records import (
    BadRecord,
    Choice,
    Context,
    FeedbackRecord,
    InteractionRecord,
    Json,
    Record,
    SkippedRecord,
)

_BOOLEAN = "-hcone-bool"
_RATING = "helicone-score-feedback"
_SESSIONS = ("helicone-session-id", "session", "session_id", "conversation", "conversation_id")
_NOT_CHAT = ("/embeddings", "/images", "/audio", "/moderations")
_NOT_CACHED = "00000000-0000-0000-0000-000000000000"


def _matches(record: Json) -> bool:
    return "request_id" in record and "request_created_at" in record and "response_status" in record


@log_format("helicone", _matches, "`request_id`, `request_created_at` and `response_status`")
def parse(record: Json, context: Context) -> list[Record]:
    """Read one row: the call, then what was said about it. A property that is another configured task skips it."""
    path = chat.text(record.get("request_path")) or ""
    if any(part in path for part in _NOT_CHAT):
        raise SkippedRecord("not a model call")
    properties = chat.mapping(inner(record.get("request_properties")))
    chat.check_task(context, record.get("prompt_id"), *properties.values())
    if (own_id := chat.call_id(record.get("request_id"))) is None:
        raise BadRecord("no id")
    return [_call(record, own_id, properties), *_rating(record, own_id), *_scores(record, own_id)]


def _call(record: Json, own_id: str, properties: Json) -> InteractionRecord:
    request = chat.mapping(inner(record.get("request_body")))
    response = _response(record.get("response_body"))
    if not {"messages", "input"} & request.keys() and record.get("signed_body_url"):
        raise BadRecord("the bodies are not in the export, only their address")
    status = chat.number(record.get("response_status"))
    failed = status is None or not 200 <= status < 300
    lower = {key.lower(): value for key, value in properties.items()}
    model = chat.text(chat.first(request.get("model"), record.get("request_model"))) or ""
    answered = chat.first(record.get("model_override"), record.get("response_model"), response.get("model"))
    cached = chat.text(record.get("cache_reference_id"))
    own = {
        "helicone_response_id": chat.first(record.get("response_id"), response.get("id")),
        "helicone_prompt_id": record.get("prompt_id"),
    }
    usage = {key: record.get(key) for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return InteractionRecord(
        call_id=own_id,
        ts=record.get("request_created_at"),
        messages=_sent(request),
        choices=_answers(response, failed),
        tools=chat.tools(request.get("tools")),
        params=chat.params(request),
        conversation_id=chat.identifier(chat.first(*(lower.get(key) for key in _SESSIONS))),
        user=chat.user(record.get("request_user_id"), record.get("helicone_user")),
        model=model,
        release=chat.text(answered) or model,
        stream=request.get("stream") is True,
        status="error" if failed else "ok",
        cache_hit=cached is not None and cached != _NOT_CACHED,
        usage=chat.present(usage) or chat.mapping(response.get("usage")),
        latency_ms=chat.number(record.get("delay_ms")),
        cost=chat.number(chat.first(record.get("cost"), record.get("costUSD"))),
        metadata=properties | chat.present(own),
    )


def _response(body: Any) -> Json:
    """The response; one that was streamed may be logged as its events."""
    found = inner(body)
    if isinstance(found, dict) and "choices" not in found and "streamed_data" in found:
        found = inner(found["streamed_data"])
    return chat.mapping(sse.whole(found))


def _sent(request: Json) -> list[Json]:
    """The messages, or those that the input of the Responses API holds."""
    items = request.get("input")
    if "messages" in request or items is None:
        return chat.messages(request.get("messages"))
    if isinstance(items, str) and items:
        return [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise BadRecord("no messages")
    return items_messages(items)


def _answers(response: Json, failed: bool) -> list[Choice]:
    if response.get("output"):
        return [Choice(0, output_message(response["output"]), None)]
    return [] if failed and not response.get("choices") else chat.choices(response.get("choices"))


def _rating(record: Json, own_id: str) -> list[FeedbackRecord]:
    scores = chat.mapping(inner(record.get("scores")))
    given = chat.first(record.get("feedback_rating"), _value(scores.get(_RATING)))
    if given is None:
        return []
    if (liked := chat.truth(given)) is None:
        raise BadRecord("the rating is neither true nor false")
    name = chat.identifier(record.get("feedback_id"))
    ts = chat.first(record.get("feedback_created_at"), record.get("request_created_at"))
    return [feedback("hc", name, ("interaction", own_id), ("thumb", liked), ts=ts, source="user")]


def _scores(record: Json, own_id: str) -> list[FeedbackRecord]:
    """The scores by name. They have no time of their own: the call's stands for it."""
    found = []
    for key, entry in chat.mapping(inner(record.get("scores"))).items():
        value = _value(entry)
        if key == _RATING or value is None:
            continue
        name = key.removesuffix(_BOOLEAN)
        whether = key.endswith(_BOOLEAN) or isinstance(value, bool)
        whether |= chat.mapping(entry).get("valueType") == "boolean"
        said = chat.truth(value) if whether else chat.number(value)
        if said is None:
            raise BadRecord("a score is neither a number nor a boolean")
        says = boolean(name, said) if isinstance(said, bool) else number(name, said)
        ts = record.get("request_created_at")
        found.append(feedback("hc", key, ("interaction", own_id), says, ts=ts, source="judge", author=name))
    return found


def _value(entry: Any) -> Any:
    return entry.get("value") if isinstance(entry, dict) else entry
