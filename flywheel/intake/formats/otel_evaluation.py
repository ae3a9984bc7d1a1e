"""OpenTelemetry's evaluation results (``gen_ai.evaluation.result``) as feedback.

A label of pass or fail is a thumb under any name; otherwise name, label and score are read as
`flywheel.intake.formats.feedback` reads them: the range of a score is the evaluator's secret. The source is a judge,
each evaluator an author of its own, unless the name speaks of a user, a thumb, a like or a vote.

An event on the span of a model call is about that call. One elsewhere is about the response that it names, else the
span that it hangs on, else the conversation, else the trace, where the last call answers for it.
"""

from __future__ import annotations

import re
from typing import Any

from flywheel.intake.formats import chat
from flywheel.intake.formats.feedback import Said, Target, boolean, category, feedback, number
from flywheel.intake.formats.otlp import Span
from flywheel.intake.orphans import metadata_key
from flywheel.intake.records import BadRecord, Context, FeedbackRecord, Json

EVENT = "gen_ai.evaluation.result"
TRACE, SPAN = "otel_trace_id", "otel_span_id"

_CONVERSATIONS = (
    *("gen_ai.conversation.id", "session.id", "gen_ai.session.id"),
    *("traceloop.association.properties.conversation_id", "traceloop.association.properties.session_id"),
)
_USERS = ("user.id", "enduser.id", "gen_ai.user.id", "gen_ai.user", "traceloop.association.properties.user_id")
_BY_USER = re.compile(r"thumb|like|vote|user|human", re.IGNORECASE)
_VERDICTS = {"pass": True, "passed": True, "fail": False, "failed": False}


def conversation(attributes: Json) -> str | None:
    """The conversation that attributes name."""
    return chat.identifier(chat.first(*(attributes.get(key) for key in _CONVERSATIONS)))


def user(attributes: Json) -> str | None:
    """The user that attributes name."""
    return chat.user(*(attributes.get(key) for key in _USERS))


def is_evaluation(span: Span) -> bool:
    """Whether a span is an evaluation result itself, as some bridges write events."""
    return span.name == EVENT or "gen_ai.evaluation.name" in span.attributes


def evaluations(span: Span, call_id: str | None, context: Context) -> list[FeedbackRecord]:
    """The feedback on a span, or that a span is.

    Args:
        call_id: the id of the model call that the span is, if it is one.
    """
    events = [(event.attributes, event.ts) for event in span.events if event.name == EVENT]
    if is_evaluation(span):
        events.append((span.attributes, span.start))
    found = []
    for attributes, ts in events:
        name = chat.text(attributes.get("gen_ai.evaluation.name")) or ""
        text = chat.text(attributes.get("gen_ai.evaluation.explanation")) or ""
        if (said := _said(name, attributes, context)) is None:
            if not text:
                continue  # an evaluation that failed
            said = "comment", {"name": name}
        by_user = _BY_USER.search(name) is not None
        author = (user(attributes) or user(span.attributes)) if by_user else name or None
        source = "user" if by_user else "judge"
        ts = chat.first(ts, span.end, span.start)
        target = _target(span, attributes, call_id)
        beside = said[0] in ("label", "correction", "outcome")
        found.append(
            feedback("otel", None, target, said, ts=ts, source=source, text="" if beside else text, author=author)
        )
    return found


def _said(name: str, attributes: Json, context: Context) -> Said | None:
    label, value = (attributes.get(f"gen_ai.evaluation.score.{key}") for key in ("label", "value"))
    said: Said | None = None
    if isinstance(label, str) and label:
        if (verdict := _VERDICTS.get(label.strip().lower())) is not None:
            return "thumb", verdict
        said = category(name, label, context.task)
        if said[0] != "comment":
            return said
    if isinstance(value, bool):
        return boolean(name, value)
    if (amount := chat.number(value)) is None:
        return said
    kind, held = number(name, amount)
    return (kind, held | {"label": label}) if said is not None and isinstance(held, dict) else (kind, held)


def _target(span: Span, attributes: Json, call_id: str | None) -> Target:
    own = chat.call_id(attributes.get("gen_ai.response.id"))
    if (target := own or call_id) is not None:
        return "interaction", target
    about = span.parent_id if is_evaluation(span) else span.span_id if span.is_log else None
    if about is not None:
        return "metadata", metadata_key(SPAN, about)
    if (talk := conversation(attributes) or conversation(span.attributes)) is not None:
        return "conversation", talk
    if span.trace_id is not None:
        return "metadata", metadata_key(TRACE, span.trace_id)
    raise BadRecord("the evaluation names nothing")


def values(attributes: Json, prefix: str) -> dict[str, Any]:
    """The attributes under a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in attributes.items() if key.startswith(prefix)}
