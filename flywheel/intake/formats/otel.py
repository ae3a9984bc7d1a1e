"""OpenTelemetry's GenAI conventions: spans of model calls, and the evaluation results on them.

A record is a span, a log record, or an OTLP/JSON export with any number of them. Spans that call no model are passed
over, and a record without a call or an evaluation is skipped. Attributes are read under their present names and under
those of version 1.36 and before. The interaction's id is that of the response or, where there is none, of the span;
trace and span lie in the metadata. The conversation is the one that the span names, else its trace. What a span says
about its content is `flywheel.intake.formats.otel_messages`; a span without content was recorded without it and is
skipped.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat
from flywheel.intake.formats.langfuse import generation
from flywheel.intake.formats.otel_evaluation import (
    EVENT,
    SPAN,
    TRACE,
    conversation,
    evaluations,
    is_evaluation,
    user,
    values,
)
from flywheel.intake.formats.otel_langfuse import is_generation, observation
from flywheel.intake.formats.otel_messages import CHOICE, MESSAGE_EVENT, answers, prompt
from flywheel.intake.formats.otlp import Span, is_telemetry, spans
from flywheel.intake.formats.pieces import function_tools
from flywheel.intake.formats.registry import log_format
from flywheel.intake.records import (
    BadRecord,
    Context,
    Dropped,
    FeedbackRecord,
    InteractionRecord,
    Json,
    Record,
    SkippedRecord,
)
from flywheel.intake.times import elapsed_ms

_CALLS = ("chat", "text_completion", "generate_content", "completion")
_DETAILS = ("gen_ai.client.inference.operation.details", "gen_ai.content.prompt", "gen_ai.content.completion")
_USAGE = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
_PARAMS = {"stop_sequences": "stop", "choice.count": "n"}
_TASK_NAMES = (
    *("gen_ai.request.model", "gen_ai.prompt.name", "gen_ai.agent.name", "gen_ai.workflow.name"),
    *("traceloop.workflow.name", "langfuse.trace.name"),
)
_STREAMS = ("gen_ai.request.stream", "gen_ai.is_streaming", "llm.is_streaming")


@log_format(
    "otel",
    is_telemetry,
    "an OTLP envelope such as `resourceSpans`, or `attributes` with `name`, `eventName` or `body`",
)
def parse(record: Json, context: Context) -> list[Record | Dropped]:
    """Read one record: its calls, then the evaluations. What is broken in one span does not cost the others."""
    calls: list[InteractionRecord] = []
    feedback: list[FeedbackRecord] = []
    refused: list[BadRecord | SkippedRecord] = []
    for span in spans(record):
        if not tells(span):
            continue
        try:
            chat.check_task(context, *task_names(span))
            call = _call(span, context) if _is_call(span) else None
            calls += [call] if call is not None else []
            feedback += evaluations(span, call.call_id if call is not None else None, context)
        except (BadRecord, SkippedRecord) as reason:
            refused.append(reason)
    if calls or feedback:
        return [*calls, *feedback, *(Dropped(str(reason)) for reason in refused)]
    refused.sort(key=lambda reason: isinstance(reason, SkippedRecord))
    raise refused[0] if refused else SkippedRecord("no model call in it")


def tells(span: Span) -> bool:
    """Whether a span, or the log records of one, may hold a call or an evaluation. From all others nothing is read."""
    return is_evaluation(span) or any(event.name == EVENT for event in span.events) or _is_call(span)


def asks(span: Span) -> bool:
    """Whether there are messages of a prompt in the span's events."""
    return any(MESSAGE_EVENT.match(event.name) for event in span.events)


def task_names(span: Span) -> list[Any]:
    """What may be a task's name: model, prompt, agent, workflow or tag of the span, and the service that sent it."""
    found = [span.attributes.get(key) for key in _TASK_NAMES]
    tags = span.attributes.get("langfuse.trace.tags")
    return [*found, *(tags if isinstance(tags, list) else ()), span.resource.get("service.name")]


def response_id(span: Span) -> str | None:
    """The id that the answer had for whoever asked."""
    return chat.text(_attributes(span).get("gen_ai.response.id"))


def _is_call(span: Span) -> bool:
    """Whether a span is a model call; one that does not name its operation, by what it holds."""
    if is_evaluation(span):
        return False
    if is_generation(span):
        return True
    attributes = _attributes(span)
    operation = chat.first(attributes.get("gen_ai.operation.name"), attributes.get("llm.request.type"))
    if operation is not None:
        return operation in _CALLS
    said = any(event.name == CHOICE for event in span.events) or "gen_ai.input.messages" in attributes
    return said or "gen_ai.request.model" in attributes


def _attributes(span: Span) -> Json:
    """A span's attributes and those of its events that hold what may also lie on the span."""
    found = dict(span.attributes)
    for event in span.events:
        if event.name in _DETAILS:
            found |= event.attributes | chat.mapping(event.body)
    return found


def _call(span: Span, context: Context) -> InteractionRecord:
    if is_generation(span):
        return generation(observation(span), {}, context)
    attributes = _attributes(span)
    messages, choices = prompt(attributes, span.events), answers(attributes, span.events)
    failed = span.failed or attributes.get("error.type") is not None
    if not messages and not choices and not failed:
        raise SkippedRecord("recorded without its content")
    if not messages:
        raise BadRecord("no messages")
    if not choices and not failed:
        raise BadRecord("no answer")
    model = chat.text(attributes.get("gen_ai.request.model")) or ""
    about = {
        TRACE: span.trace_id,
        SPAN: span.span_id,
        "otel_provider": chat.first(attributes.get("gen_ai.provider.name"), attributes.get("gen_ai.system")),
        "otel_prompt": attributes.get("gen_ai.prompt.name"),
        "otel_prompt_version": attributes.get("gen_ai.prompt.version"),
        "otel_error": attributes.get("error.type"),
    }
    own = f"{span.trace_id or ''}-{span.span_id}" if span.span_id is not None else None
    previous = attributes.get("gen_ai.request.previous_response.id")
    return InteractionRecord(
        call_id=chat.call_id(attributes.get("gen_ai.response.id")) or chat.call_id(own),
        ts=span.start,
        messages=messages,
        choices=choices,
        tools=function_tools(inner(attributes.get("gen_ai.tool.definitions"))) or _older_tools(attributes),
        params=_params(attributes),
        conversation_id=conversation(attributes) or span.trace_id,
        parent_id=chat.identifier(previous),
        user=user(attributes),
        model=model,
        release=chat.text(attributes.get("gen_ai.response.model")) or model,
        stream=any(attributes.get(key) is True for key in _STREAMS),
        status="error" if failed else "ok",
        usage=_usage(attributes),
        latency_ms=elapsed_ms(span.start, span.end),
        cost=chat.number(attributes.get("gen_ai.usage.cost")),
        metadata=chat.present(about),
    )


def _params(attributes: Json) -> Json:
    found = values(attributes, "gen_ai.request.")
    left_out = ("model", "stream", "previous_response.id")
    return {_PARAMS.get(key, key): value for key, value in found.items() if key not in left_out}


def _usage(attributes: Json) -> Json:
    """Token counts; the older names are those that chat completions use."""
    found = {_USAGE.get(key, key): value for key, value in values(attributes, "gen_ai.usage.").items() if key != "cost"}
    return {key.replace("cache_creation", "cache_write"): value for key, value in found.items()}


def _older_tools(attributes: Json) -> list[Any] | None:
    """Tools as numbered attributes name them."""
    rows: dict[str, Json] = {}
    for key, value in values(attributes, "llm.request.functions.").items():
        place, _, name = key.partition(".")
        if place.isdigit() and name in ("name", "description", "parameters"):
            rows.setdefault(place, {})[name] = inner(value) if name == "parameters" else value
    return function_tools([rows[place] for place in sorted(rows, key=int)])
