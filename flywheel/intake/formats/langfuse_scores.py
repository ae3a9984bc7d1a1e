"""Langfuse scores: feedback on an observation, a trace or a session.

- CORRECTION and TEXT hold 0 as their value and CATEGORICAL an index: what they say is in ``string_value``. A correction
  is the answer that should have been given, a text is a comment.
- What a BOOLEAN, NUMERIC or CATEGORICAL score says depends on its name; `feedback` has the rules.
- ``source`` says who: API the user, ANNOTATION a reviewer, EVAL a judge.

A score on a trace is about `TRACE`: of several generations in the trace, the last one answers for it.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.formats import chat
from flywheel.intake.formats.feedback import Said, Target, boolean, category, feedback, number
from flywheel.intake.orphans import metadata_key
from flywheel.intake.records import BadRecord, Context, FeedbackRecord, Json, SkippedRecord

TRACE = "langfuse_trace_id"
"""Where an interaction's metadata names its trace."""

_SOURCES = {"API": "user", "ANNOTATION": "reviewer", "EVAL": "judge"}


def get(row: Json, name: str) -> Any:
    """A field by its exported name or by the API's; "" means unset."""
    head, *tail = name.split("_")
    found = chat.first(row.get(name), row.get(head + "".join(word.title() for word in tail)))
    return None if found == "" else found


def score(row: Json, context: Context) -> list[FeedbackRecord]:
    """A score, and the remark beside it where the score's own text is the answer that should have been given."""
    name, source = chat.text(row.get("name")) or "", row.get("source")
    if not isinstance(source, str) or source not in _SOURCES:
        raise BadRecord("unknown score source")
    by = _SOURCES[source]
    target, own_id = _target(row), chat.identifier(row.get("id"))
    ts = chat.first(get(row, "updated_at"), get(row, "timestamp"))
    # An evaluator is an author of its own: two of them must not outvote each other.
    author = chat.user(get(row, "author_user_id")) or (name if by == "judge" else None)
    said, text = _said(row, name, context)
    remark = chat.text(row.get("comment")) or ""
    beside = said[0] in ("label", "correction", "outcome") or bool(text)
    found = [feedback("lf", own_id, target, said, ts=ts, source=by, text=text if beside else remark, author=author)]
    if beside and remark:
        found.append(feedback("lf", own_id, target, ("comment", None), ts=ts, source=by, text=remark, author=author))
    return found


def _said(row: Json, name: str, context: Context) -> tuple[Said, str]:
    """What a score says, with its text."""
    kind, value, text = get(row, "data_type"), row.get("value"), chat.text(get(row, "string_value"))
    if kind == "BOOLEAN":
        if (yes := chat.first(chat.truth(text), chat.truth(value))) is None:
            raise BadRecord("the boolean score is neither true nor false")
        return boolean(name, yes), ""
    if kind == "NUMERIC":
        if (amount := chat.number(value)) is None:
            raise BadRecord("the score is not a number")
        return number(name, amount), ""
    if kind not in ("CATEGORICAL", "TEXT", "CORRECTION"):
        raise BadRecord("unknown score type")
    if text is None or not text.strip():
        raise BadRecord("the score has no text")
    if kind == "CATEGORICAL":
        return category(name, text, context.task), ""
    return ("correction" if kind == "CORRECTION" else "comment", None), text


def _target(row: Json) -> Target:
    if (observation := chat.identifier(get(row, "observation_id"))) is not None:
        return "interaction", observation
    if (trace := chat.identifier(get(row, "trace_id"))) is not None:
        return "metadata", metadata_key(TRACE, trace)
    if (session := chat.identifier(get(row, "session_id"))) is not None:
        return "conversation", session
    if get(row, "dataset_run_id") is not None:
        raise SkippedRecord("score of a dataset run")
    raise BadRecord("the score names nothing")
