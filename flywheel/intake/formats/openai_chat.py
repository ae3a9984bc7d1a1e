"""OpenAI chat JSON lines, in the three shapes that people export.

- ``{"request": {messages, ...}, "response": {choices, ...}}``: a logged call;
- ``{"messages": [...], "choices": [...]}`` or ``{"messages": [...], "response": ...}``: a stored completion with its
  input beside it, also as the page on which the API lists it; ``response`` may be a completion, a message or the
  answer's text;
- ``{"messages": [..., {"role": "assistant", ...}]}``: a fine-tuning row, whose last assistant message is the answer.

In a table's cells a request, a response and the lists may be JSON text. A response may be its stream. One that is an
error is a failed call. A stored completion's metadata is where its users put their verdict: ``thumb`` or ``feedback``
in one word (up, down, good, bad ...) becomes a thumb, a longer ``feedback`` a comment, ``correction`` a correction.

A fine-tuning row becomes an interaction only: nobody has judged it here, so it makes no label by itself
(``flywheel train --data`` trains on such a file directly). Its answer is the last one that trains: one of weight 0 is
passed over, and a row with no other is skipped. Preference rows are a format of their own.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat, sse
from flywheel.intake.formats.feedback import Said, category, feedback
from flywheel.intake.formats.openai_preference import is_preference
from flywheel.intake.formats.registry import log_format
from flywheel.intake.records import BadRecord, Choice, Context, InteractionRecord, Json, Parsed, Record, SkippedRecord

_STORED_PARAMS = (
    *("temperature", "top_p", "max_tokens", "max_completion_tokens", "n", "stop", "seed", "logit_bias", "modalities"),
    *("presence_penalty", "frequency_penalty", "response_format", "tool_choice", "parallel_tool_calls"),
    *("reasoning_effort", "verbosity"),
)
_VERDICTS = ("thumb", "thumbs", "feedback")
_SAYING = frozenset({"correction", *_VERDICTS})
_CELLS = frozenset({"messages", "choices", "tools", "usage", "metadata"})  # never texts by themselves
_BLUEPRINT = frozenset({"workload_id", "client_id", "contract_version"})
_LITELLM = frozenset({"startTime", "litellm_call_id"})


def _matches(record: Json) -> bool:
    litellm = "call_type" in record and not _LITELLM.isdisjoint(record)
    if litellm or is_preference(record):
        return False
    if isinstance(request := inner(record.get("request")), dict):
        other_api = "input" in request and "messages" not in request
        return "response" in record and not other_api and _BLUEPRINT.isdisjoint(record)
    return "messages" in record or "choices" in record


@log_format("openai_chat", _matches, "`request` with `response`, or `messages`, or `choices`")
def parse(record: Json, context: Context) -> Parsed:
    """Read one record of any of the three shapes: the call, then what its metadata says about it."""
    call = _read(record)
    verdicts = _verdicts(call, context)
    return [call, *verdicts] if verdicts else call


def _read(record: Json) -> InteractionRecord:
    if isinstance(request := inner(record.get("request")), dict):
        response = inner(record.get("response"))
        if isinstance(whole := sse.whole(response), dict):
            return _call(record, request, whole, streamed=whole is not response)
        raise BadRecord("the response is not an object")
    record = {key: inner(value) if key in _CELLS else value for key, value in record.items()}
    if "choices" in record:
        return _call(record, record, record)
    if "response" in record:
        response = record["response"]
        whole = sse.whole(response)
        return _call(record, record, _completion(whole), streamed=whole is not response)
    return _fine_tuning_row(record)


def _call(record: Json, request: Json, response: Json, *, streamed: bool = False) -> InteractionRecord:
    metadata = {**chat.mapping(inner(record.get("metadata"))), **chat.mapping(request.get("metadata"))}
    model = chat.text(request.get("model")) or ""
    failed = bool(response.get("error"))
    return InteractionRecord(
        call_id=chat.call_id(chat.first(response.get("id"), record.get("id"))),
        ts=chat.first(record.get("timestamp"), record.get("ts"), record.get("created_at"), response.get("created")),
        messages=chat.messages(_rows(request)),
        choices=[] if failed and not response.get("choices") else chat.choices(response.get("choices")),
        tools=chat.tools(request.get("tools")),
        params=_stored_params(record) if request is record else chat.params(request),
        conversation_id=chat.identifier(chat.first(metadata.get("conversation_id"), record.get("conversation_id"))),
        user=chat.user(*map(request.get, chat.USERS), *map(record.get, chat.USERS)),
        model=model,
        release=chat.text(response.get("model")) or model,
        stream=request.get("stream") is True or streamed,
        status="error" if failed else "ok",
        usage=chat.mapping(response.get("usage")),
        latency_ms=chat.number(record.get("latency_ms")),
        metadata=metadata,
    )


def _stored_params(record: Json) -> Json:
    return {key: value for key, value in record.items() if key in _STORED_PARAMS and value is not None}


def _rows(request: Json) -> Any:
    """The messages as found; the API lists those of a stored completion on a page."""
    found = request.get("messages")
    return found.get("data") if isinstance(found, dict) else found


def _verdicts(call: InteractionRecord, context: Context) -> list[Record]:
    """What metadata says about the answer. It has no time of its own: the call's stands for it."""
    if call.call_id is None or _SAYING.isdisjoint(call.metadata):
        return []
    found: list[Record] = []
    for key, value in call.metadata.items():
        if (said := _verdict(key, value, context)) is not None:
            text = value if said[1] is None else ""
            target = "interaction", call.call_id
            found.append(feedback("oai", key, target, said, ts=call.ts, source="user", text=text, author=call.user))
    return found


def _verdict(key: str, value: Any, context: Context) -> Said | None:
    """What an entry of the metadata says: one word may be a thumb; more, such as "not bad", is a remark."""
    if key not in _SAYING or not isinstance(value, str) or not value.strip():
        return None
    if key == "correction":
        return "correction", None
    said = category(key, value, context.task)
    if said[0] == "thumb" and len(value.split()) == 1:
        return said
    return ("comment", None) if key == "feedback" else None


def _completion(response: Any) -> Json:
    """A completion from a completion, a message or a text."""
    if isinstance(response, str):
        response = {"role": "assistant", "content": response}
    if isinstance(response, dict) and ("choices" in response or response.get("error")):
        return response
    if isinstance(response, dict) and "content" in response:
        return {"choices": [{"index": 0, "message": response, "finish_reason": None}]}
    raise BadRecord("the response has no answer")


def _fine_tuning_row(record: Json) -> InteractionRecord:
    rows = _rows(record)
    messages = chat.messages(rows)
    answers = [place for place, item in enumerate(messages) if item["role"] == "assistant" and place]
    if not answers:
        raise BadRecord("no assistant answer after a message")
    learned = [place for place in answers if chat.number(rows[place].get("weight")) != 0]
    if not learned:
        raise SkippedRecord("answer with weight 0")
    last = learned[-1]
    return InteractionRecord(
        call_id=chat.call_id(record.get("id")),
        ts=chat.first(*(record.get(key) for key in ("timestamp", "ts", "created_at", "created"))),
        messages=messages[:last],
        choices=[Choice(0, messages[last], None)],
        tools=chat.tools(record.get("tools")),
        user=chat.user(*(record.get(key) for key in chat.USERS)),
        metadata=chat.mapping(record.get("metadata")),
    )
