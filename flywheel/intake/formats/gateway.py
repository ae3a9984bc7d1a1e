"""The gateway's own write-ahead log, version 1: calls, feedback, and the telemetry that others sent to it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from flywheel.intake.formats import chat
from flywheel.intake.formats.registry import log_format, named
from flywheel.intake.orphans import metadata_key
from flywheel.intake.records import (
    FEEDBACK_KINDS,
    FEEDBACK_SOURCES,
    BadRecord,
    Context,
    Dropped,
    FeedbackRecord,
    InteractionRecord,
    Json,
    NothingLeft,
    Parsed,
    Record,
    SecondhandRecord,
    SkippedRecord,
)

ERASED = "erased"
"""Kind of a line whose record was erased; a line too short to say so is an empty object."""

OTLP = "otlp"
"""Kind of a line that holds a span, or the log records of one, as an exporter sent it."""

_THUMBS: dict[Any, bool] = {"up": True, "down": False, "true": True, "false": False, 1: True, 0: False}


def _matches(record: Json) -> bool:
    return "v" in record and record.get("kind") in ("interaction", "feedback", OTLP, ERASED)


@log_format("gateway", _matches, "`v` with `kind` interaction, feedback, otlp or erased")
def parse(record: Json, context: Context) -> Parsed:
    """Read one log record. Calls of other tasks and of no task (straight to the base model) are skipped."""
    if not record or record.get("kind") == ERASED:
        raise NothingLeft("erased")
    if record.get("v") != 1:
        raise BadRecord("unknown log version")
    kind, task = record.get("kind"), record.get("task")
    # Feedback that names no task may be about any; it joins in the one task that knows its target.
    if task != context.task and not (kind == "feedback" and not task):
        raise SkippedRecord("other task")
    if kind == "interaction":
        return _interaction(record)
    if kind == "feedback":
        return _feedback(record)
    if kind == OTLP:
        return telemetry(record)
    raise BadRecord("unknown kind of record")


def telemetry(record: Json) -> list[Record | Dropped]:
    """What a line of telemetry holds, whatever the task; the gateway has found that out when it came.

    A call that the gateway answered itself is in its log already, and is not told twice. Raises Bad- or SkippedRecord.
    """
    task = chat.text(record.get("task")) or ""
    read = named("otel").parse(chat.mapping(record.get("body")), Context(task, frozenset({task})))
    found = [read] if isinstance(read, InteractionRecord | FeedbackRecord) else read
    own = record.get("answered") is True
    return [_secondhand(one) if own and isinstance(one, InteractionRecord) else one for one in found]


def _secondhand(call: InteractionRecord) -> SecondhandRecord:
    return SecondhandRecord(**{field.name: getattr(call, field.name) for field in fields(call)})


def _interaction(record: Json) -> InteractionRecord:
    request = chat.mapping(record.get("request"))
    status = chat.text(record.get("status")) or "ok"
    if (call_id := chat.call_id(record.get("id"))) is None:
        raise BadRecord("no id")
    return InteractionRecord(
        call_id=call_id,
        ts=record.get("ts"),
        messages=chat.messages(request.get("messages")),
        # A failed call has no answer; it is kept, so that failures can be counted and learned from.
        choices=[] if status != "ok" and not record.get("choices") else chat.choices(record.get("choices")),
        tools=chat.tools(request.get("tools")),
        params=chat.mapping(request.get("params")),
        conversation_id=chat.identifier(record.get("conversation_id")),
        parent_id=chat.identifier(record.get("parent_id")),
        user=chat.text(record.get("user")),
        model=chat.text(record.get("model")) or "",
        release=chat.text(record.get("release")) or "",
        stream=record.get("stream") is True,
        status=status,
        usage=chat.mapping(record.get("usage")),
        latency_ms=chat.number(record.get("latency_ms")),
        metadata=chat.mapping(record.get("metadata")),
    )


def _feedback(record: Json) -> FeedbackRecord:
    body = chat.mapping(record.get("feedback"))
    kind, source = body.get("kind"), record.get("source")
    if not isinstance(kind, str) or kind not in FEEDBACK_KINDS:
        raise BadRecord("unknown feedback kind")
    if not isinstance(source, str) or source not in FEEDBACK_SOURCES:
        raise BadRecord("unknown feedback source")
    if (feedback_id := chat.identifier(record.get("id"))) is None:
        raise BadRecord("no id")
    target_kind, target = _target(chat.mapping(record.get("target")))
    text = body.get("text")
    return FeedbackRecord(
        feedback_id=feedback_id,
        ts=record.get("ts"),
        target_kind=target_kind,
        target=target,
        kind=kind,
        value=_value(kind, body.get("value"), text),
        text=text if isinstance(text, str) else "",
        source=source,
        author=chat.text(record.get("author")),
        source_id=chat.identifier(record.get("source_id")),
        supersedes=chat.identifier(record.get("supersedes")) or "",
    )


def _target(target: Json) -> tuple[str, str]:
    kind = target.get("kind")
    if kind in ("interaction", "conversation"):
        if (found := chat.identifier(target.get("id"))) is None:
            raise BadRecord("the feedback's target has no id")
        return str(kind), found
    key, value = target.get("key"), target.get("value")
    if kind == "metadata" and isinstance(key, str) and isinstance(value, str | int | float):
        return "metadata", metadata_key(key, value)
    raise BadRecord("unknown feedback target")


def _value(kind: str, value: Any, text: Any) -> Any:
    """The value in its one spelling. Raises BadRecord when the kind needs one that is not there."""
    if kind in ("thumb", "outcome"):
        if isinstance(value, str):
            value = value.strip().lower()
        found = value if isinstance(value, bool) else _THUMBS.get(value) if isinstance(value, str | int) else None
        if found is None:
            raise BadRecord(f"the {kind} is neither true nor false")
        return found
    if kind == "rating":
        if (rating := chat.number(value)) is None:
            raise BadRecord("the rating is not a number")
        return rating
    said = isinstance(text, str) and text.strip()
    if kind in ("label", "correction") and not said and (not isinstance(value, str | int | float) or value == ""):
        raise BadRecord(f"the {kind} has no text")
    return value
