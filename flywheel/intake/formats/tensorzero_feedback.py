"""TensorZero's four feedback tables.

A metric is about an inference or an episode, which only TensorZero's configuration tells: the id finds whichever it is.
What a boolean metric says follows from its name (`flywheel.intake.formats.feedback`); a float metric's range lies in
nobody's log, so it is kept as a rating without a scale. A demonstration is a correction: the text that should have been
said or, for an answer with tool calls, the message.

Metrics that TensorZero's evaluators wrote are a judge's, each evaluator an author of its own; with the tag of human
feedback they are a reviewer's. Everything else is a user's, by the tag ``author`` if there is one.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat
from flywheel.intake.formats.feedback import Target, boolean, feedback, number
from flywheel.intake.formats.tensorzero_blocks import answer
from flywheel.intake.records import BadRecord, Context, FeedbackRecord, Json

TABLES = ("BooleanMetricFeedback", "FloatMetricFeedback", "CommentFeedback", "DemonstrationFeedback")

_HUMAN, _JUDGE = "tensorzero::human_feedback", "tensorzero::evaluator_inference_id"
_EVALUATOR = "::evaluator_name::"
_AUTHORS = ("author", "user_id", "user")


def feedback_table(record: Json) -> str | None:
    """The feedback table that a row's columns belong to."""
    if "id" not in record or "value" not in record:
        return None
    if "target_id" in record and "metric_name" in record:
        whether = isinstance(record["value"], bool)
        return "BooleanMetricFeedback" if whether else "FloatMetricFeedback"
    if "target_id" in record and "target_type" in record:
        return "CommentFeedback"
    return "DemonstrationFeedback" if "inference_id" in record else None


def said(table: str, record: Json, context: Context) -> FeedbackRecord:
    """Read one row of a feedback table."""
    if (own := chat.identifier(record.get("id"))) is None:
        raise BadRecord("no id")
    tags = chat.mapping(inner(record.get("tags")))
    metric = chat.text(record.get("metric_name")) or ""
    name = metric.rpartition(_EVALUATOR)[2]
    judged = _JUDGE in tags or _EVALUATOR in metric
    human = str(tags.get(_HUMAN)).lower() == "true"
    author = chat.user(*(tags.get(key) for key in _AUTHORS), name if judged and not human else None)
    source = "reviewer" if human else "judge" if judged else "user"
    kind, value, text = _said(table, name, record.get("value"))
    ts = row_time(record, own)
    return feedback("tz", own, _target(table, record), (kind, value), ts=ts, source=source, text=text, author=author)


def row_time(record: Json, own: str) -> Any:
    """A row's timestamp or, when it was left out, the milliseconds that its UUIDv7 holds."""
    if (told := record.get("timestamp")) not in (None, ""):
        return told
    try:
        name = UUID(own)
    except ValueError:
        return None
    return name.int >> 80 if name.version == 7 else None


def _said(table: str, name: str, value: Any) -> tuple[str, Any, str]:
    if table == "CommentFeedback":
        if not isinstance(value, str) or not value.strip():
            raise BadRecord("the comment has no text")
        return "comment", None, value
    if table == "DemonstrationFeedback":
        if not isinstance(held := inner(value), dict | list) or (isinstance(held, dict) and "raw" not in held):
            return _demonstrated_text(value)
        message = answer(value)
        plain = isinstance(message["content"], str) and message.keys() <= {"role", "content", "reasoning_content"}
        return ("correction", None, message["content"]) if plain else ("correction", {"message": message}, "")
    if table == "BooleanMetricFeedback":
        if (yes := chat.truth(value)) is None:
            raise BadRecord("the metric is neither true nor false")
        return *boolean(name, yes), ""
    if (amount := chat.number(value)) is None:
        raise BadRecord("the metric is not a number")
    return *number(name, amount), ""


def _demonstrated_text(value: Any) -> tuple[str, Any, str]:
    if not isinstance(value, str) or not value.strip():
        raise BadRecord("the demonstration has no text")
    return "correction", None, value


def _target(table: str, record: Json) -> Target:
    demonstrated = table == "DemonstrationFeedback"
    target = chat.identifier(record.get("inference_id" if demonstrated else "target_id"))
    if target is None:
        raise BadRecord("the feedback's target has no id")
    if demonstrated:
        return "interaction", target
    kinds = {"inference": "interaction", "episode": "conversation"}
    return kinds.get(str(record.get("target_type")), "either"), target
