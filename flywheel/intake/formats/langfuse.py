"""Langfuse exports: observations and scores, and the older traces with theirs.

- ``observations_v2/`` and ``observations/`` rows: a GENERATION is a call; its input and output are texts that may hold
  a chat as JSON. Langfuse's own evaluators and experiments write generations too; those are skipped.
- ``scores/`` rows: feedback on an observation, a trace, or a session.
- ``traces/`` rows hold no call and are skipped; a trace as the API gives it brings its observations and scores along.

An interaction is in the conversation of its session or, without one, of its trace, and carries ``langfuse_trace_id``.
Times have no zone and are UTC; the latency is the end minus the start, since the column holds milliseconds in some
exports and seconds in others.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat
from flywheel.intake.formats.freeform import answer, prompt
from flywheel.intake.formats.langfuse_scores import TRACE, get, score
from flywheel.intake.formats.registry import log_format
from flywheel.intake.records import (
    BadRecord,
    Choice,
    Context,
    Dropped,
    InteractionRecord,
    Json,
    Parsed,
    Record,
    SkippedRecord,
)
from flywheel.intake.times import elapsed_ms

_NOT_TRAFFIC = ("llm-as-a-judge", "sdk-experiment")


def _matches(record: Json) -> bool:
    return _is_observation(record) or _isscore(record) or _is_trace(record)


def _is_observation(record: Json) -> bool:
    return "type" in record and _has(record, "trace_id", "traceId") and _has(record, "start_time", "startTime")


def _isscore(record: Json) -> bool:
    return "name" in record and "value" in record and _has(record, "data_type", "dataType")


def _is_trace(record: Json) -> bool:
    return "bookmarked" in record and "timestamp" in record


def _has(record: Json, *names: str) -> bool:
    return any(name in record for name in names)


@log_format(
    "langfuse",
    _matches,
    "`type`, `trace_id` and `start_time`, or `data_type` and `value` of a score, or `bookmarked` of a trace",
)
def parse(record: Json, context: Context) -> Parsed:
    """Read one row. One whose trace or name is another configured task is skipped."""
    if _is_observation(record):
        return generation(record, {}, context)
    if _isscore(record):
        return score(record, context)
    return _trace(record, context)


def _trace(record: Json, context: Context) -> list[Record | Dropped]:
    """The calls and scores that a trace brings along; one that cannot be read does not cost it the others."""
    calls: list[Record | Dropped] = []
    said: list[Record | Dropped] = []
    rule = "trace without a call"
    for row in _rows(record.get("observations")):
        if row.get("type") != "GENERATION":
            continue
        try:
            calls.append(generation(row, record, context))
        except BadRecord as error:
            said.append(Dropped(str(error)))
        except SkippedRecord as error:
            rule = str(error)
    if not calls and not said:
        raise SkippedRecord(rule)
    for row in _rows(record.get("scores")) if calls else ():
        try:
            said += score({"trace_id": record.get("id"), **row}, context)
        except BadRecord as error:
            said.append(Dropped(str(error)))
    return [*calls, *said]


def _rows(value: Any) -> list[Json]:
    """The objects of a list; the API's lists of traces name observations and scores by id only."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def generation(row: Json, trace: Json, context: Context) -> InteractionRecord:
    """A generation, with what its trace says where the row says nothing. Raises Bad- or SkippedRecord."""
    if row.get("type") != "GENERATION":
        raise SkippedRecord("not a model call")
    environment = chat.text(get(row, "environment")) or ""
    if environment.startswith("langfuse") or environment in _NOT_TRAFFIC:
        raise SkippedRecord("evaluation or experiment run")
    trace_name = chat.text(chat.first(get(row, "trace_name"), get(trace, "name")))
    chat.check_task(context, trace_name, row.get("name"))
    trace_id = chat.identifier(get(row, "trace_id"))
    session = chat.identifier(chat.first(get(row, "session_id"), get(trace, "session_id")))
    messages, offered = prompt(get(row, "input"))
    failed = row.get("level") == "ERROR"
    own = {
        TRACE: trace_id,
        "langfuse_trace_name": trace_name,
        "langfuse_environment": environment,
        "langfuse_release": chat.text(get(row, "release")),
        "langfuse_tags": chat.first(get(row, "tags"), get(trace, "tags")),
    }
    model = chat.text(chat.first(get(row, "provided_model_name"), get(row, "model"))) or ""
    usage = chat.first(get(row, "usage_details"), get(row, "usage"))
    return InteractionRecord(
        call_id=chat.call_id(row.get("id")),
        ts=get(row, "start_time"),
        messages=messages,
        choices=_choices(row, failed),
        tools=offered or _tools(inner(get(row, "tool_definitions"))),
        params=chat.mapping(inner(get(row, "model_parameters"))),
        conversation_id=session or trace_id,
        user=chat.user(get(row, "user_id"), get(trace, "user_id")),
        model=model,
        release=model,
        stream=get(row, "completion_start_time") is not None,
        status="error" if failed else "ok",
        usage=chat.mapping(inner(usage)),
        latency_ms=elapsed_ms(get(row, "start_time"), get(row, "end_time")),
        cost=chat.number(chat.first(get(row, "total_cost"), get(row, "calculated_total_cost"))),
        metadata=chat.mapping(inner(row.get("metadata"))) | chat.present(own),
    )


def _choices(row: Json, failed: bool) -> list[Choice]:
    """The answers; tool calls that lie in their own column join the message that does not have them."""
    found = answer(get(row, "output"))
    calls = _calls(row)
    if calls and not any("tool_calls" in choice.message for choice in found):
        said = found[0].message if found else {"role": "assistant", "content": ""}
        found = [Choice(0, chat.message(said | {"tool_calls": calls}), None), *found[1:]]
    if not found and not failed:
        raise BadRecord("no answer")
    return found


def _calls(row: Json) -> list[Json]:
    calls, names = inner(get(row, "tool_calls")), inner(get(row, "tool_call_names"))
    found = []
    for place, item in enumerate(calls if isinstance(calls, list) else []):
        call = inner(item)
        if not isinstance(call, dict):
            raise BadRecord("a tool call is not an object")
        if not isinstance(call.get("function"), dict):
            name = names[place] if isinstance(names, list) and place < len(names) else None
            function = {"name": chat.first(call.get("name"), name), "arguments": call.get("arguments")}
            call = {"id": call.get("id"), "type": "function", "function": chat.present(function)}
        found.append(chat.present(call))
    return found


def _tools(definitions: Any) -> list[Any] | None:
    """Tools from definitions by name, each JSON text or an object, or from a list of them."""
    named = definitions if isinstance(definitions, dict) else {}
    bodies = [(name, inner(body)) for name, body in named.items()]
    bodies += [("", inner(body)) for body in definitions] if isinstance(definitions, list) else []
    found = []
    for name, body in bodies:
        if not isinstance(body, dict):
            raise BadRecord("a tool definition is not an object")
        function = body.get("function")
        whole, function = (body, function) if isinstance(function, dict) else ({"type": "function"}, body)
        found.append(whole | {"function": chat.present({"name": name}) | function})
    return found or None
