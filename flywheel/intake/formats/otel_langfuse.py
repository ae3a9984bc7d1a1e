"""Spans of Langfuse's own SDKs (``langfuse.observation.*``) as rows of its export.

So a call has the same id, and the same content, whether its span came here or its row was exported from Langfuse.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat
from flywheel.intake.formats.otlp import Span
from flywheel.intake.records import Json

_OBSERVATION = "langfuse.observation."
_METADATA = ("langfuse.trace.metadata.", f"{_OBSERVATION}metadata.")
_GENERATION = ("generation", "GENERATION")


def is_generation(span: Span) -> bool:
    """Whether a span is a generation, which is what Langfuse calls a model call."""
    return span.attributes.get(f"{_OBSERVATION}type") in _GENERATION


def observation(span: Span) -> Json:
    """The row that Langfuse would export for a generation's span."""

    def said(*names: str) -> Any:
        return chat.first(*(span.attributes.get(name) for name in names))

    given = {
        key.removeprefix(prefix): _plain(value)
        for prefix in _METADATA
        for key, value in span.attributes.items()
        if key.startswith(prefix)
    }
    return chat.present(
        {
            "type": "GENERATION",
            "id": span.span_id,
            "trace_id": span.trace_id,
            "start_time": span.start,
            "end_time": span.end,
            "name": span.name,
            "level": "ERROR" if span.failed else said(f"{_OBSERVATION}level"),
            "input": said(f"{_OBSERVATION}input"),
            "output": said(f"{_OBSERVATION}output"),
            "provided_model_name": said(f"{_OBSERVATION}model.name"),
            "model_parameters": said(f"{_OBSERVATION}model.parameters"),
            "usage_details": said(f"{_OBSERVATION}usage_details"),
            "completion_start_time": said(f"{_OBSERVATION}completion_start_time"),
            "metadata": given or said(f"{_OBSERVATION}metadata"),
            "trace_name": said("langfuse.trace.name"),
            "tags": said("langfuse.trace.tags"),
            "user_id": chat.first(said("user.id", "langfuse.user.id"), given.get("langfuse_user_id")),
            "session_id": chat.first(said("session.id", "langfuse.session.id"), given.get("langfuse_session_id")),
            "environment": said("langfuse.environment", "deployment.environment.name"),
            "release": said("langfuse.release"),
        }
    )


def _plain(value: Any) -> Any:
    """A value of the metadata without the quotes that the SDK writes around texts."""
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        unquoted = inner(f"[{value}]")
        return unquoted[0] if isinstance(unquoted, list) and len(unquoted) == 1 else value
    return inner(value)
