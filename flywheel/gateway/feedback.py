"""``POST /v1/feedback``: one fact about an answer, or a list of them, on disk before the 2xx.

Body, or each item of a list::

    {"interaction_id": "chatcmpl-..."}        one of these three says what it is about
    {"conversation_id": "..."}
    {"metadata": {"key": "ticket", "value": "42"}}
    "kind":   thumb | rating | correction | preference | label | comment | outcome
    "value":  thumb true/false/"up"/"down"; rating a number; outcome true/false; preference {"chosen", "rejected"}
              and, if known, "shown_first": "chosen" or "rejected"
    "text":   correction, comment: required; label: this or value; others optional
    "task", "source" (default user), "author", "id" (the caller's own, makes a repeat harmless), "supersedes"
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from flywheel.config import Config
from flywheel.errors import RequestError, StoreError
from flywheel.gateway.bodies import read_json
from flywheel.gateway.errors import from_validation, unavailable
from flywheel.gateway.identity import task_of
from flywheel.gateway.keys import Principal, Scope
from flywheel.gateway.metrics import UNKNOWN
from flywheel.gateway.state import Gateway
from flywheel.store.registry.schema import utc_now

MAX_ITEMS = 1000

Kind = Literal["thumb", "rating", "correction", "preference", "label", "comment", "outcome"]
Source = Literal["user", "reviewer", "judge", "verifier", "implicit"]
Remembered = Callable[[str], str | None]
Identifier = Annotated[str, Field(min_length=1, max_length=512)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class MetadataTarget(_Strict):
    """Points at interactions by what the caller put into their metadata."""

    key: Annotated[str, Field(min_length=1, max_length=64)]
    value: Annotated[str, Field(max_length=512)]


class FeedbackItem(_Strict):
    """One piece of feedback as posted. Unknown fields are refused: a misspelt one would be lost in silence."""

    interaction_id: Identifier | None = None
    conversation_id: Identifier | None = None
    metadata: MetadataTarget | None = None
    kind: Kind
    value: Any = None
    text: str | None = None
    task: str | None = None
    source: Source = "user"
    author: Identifier | None = None
    id: Identifier | None = None
    supersedes: Identifier | None = None

    @model_validator(mode="after")
    def _whole(self) -> FeedbackItem:
        targets = [self.interaction_id, self.conversation_id, self.metadata]
        if sum(target is not None for target in targets) != 1:
            raise _fault("give exactly one of `interaction_id`, `conversation_id` and `metadata`")
        _check_value(self.kind, self.value, self.text)
        return self

    def target(self) -> dict[str, Any]:
        """What it is about, as the log has it."""
        if self.metadata is not None:
            return {"kind": "metadata", "key": self.metadata.key, "value": self.metadata.value}
        if self.conversation_id is not None:
            return {"kind": "conversation", "id": self.conversation_id}
        return {"kind": "interaction", "id": self.interaction_id}

    def plain_value(self) -> Any:
        """The value with "up" and "down" as booleans."""
        return {"up": True, "down": False}[self.value] if self.kind == "thumb" and self.value in _WORDS else self.value


_WORDS = ("up", "down")


def _check_value(kind: Kind, value: Any, text: str | None) -> None:
    said = bool(text and text.strip())
    if kind == "thumb" and not (isinstance(value, bool) or (isinstance(value, str) and value in _WORDS)):
        raise _fault('a thumb needs `value`: true, false, "up" or "down"')
    if kind == "outcome" and not isinstance(value, bool):
        raise _fault("an outcome needs `value`: true or false")
    if kind == "rating" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise _fault("a rating needs `value`: a number")
    if kind in ("correction", "comment"):
        if not said:
            raise _fault(f"a {kind} needs `text`")
        if value is not None:
            raise _fault(f"a {kind} takes `text`, not `value`")
    if kind == "label" and not (isinstance(value, str | int | float) and value != "") and not said:
        raise _fault("a label needs `text`, or `value`: a string, number or boolean")
    if kind == "preference":
        if isinstance(value, dict) and _is_preference(value):
            return
        if value is not None or not said:
            raise _fault(
                "a preference needs `value`: {chosen, rejected} with two texts, and perhaps shown_first: chosen or"
                " rejected; or `text` with the better answer"
            )


def _is_preference(value: dict[str, Any]) -> bool:
    sides = [value.get("chosen"), value.get("rejected")]
    shown = value.get("shown_first", "chosen")
    known = value.keys() <= {"chosen", "rejected", "shown_first"}
    return known and all(isinstance(side, str) and side for side in sides) and shown in ("chosen", "rejected")


def _fault(message: str) -> PydanticCustomError:
    return PydanticCustomError("invalid_feedback", message)


def feedback_record(item: FeedbackItem, config: Config, remembered: Remembered) -> dict[str, Any]:
    """The log record of one valid item. Its task is "" when only intake can find it.

    An item with the caller's own ``id`` always gets the same feedback id, so intake keeps it once however often it is
    posted. Raises RequestError (400) when the task cannot be told.
    """
    task = _task(item, config, remembered)
    if item.id is None:
        name = uuid.uuid4().hex
    else:
        name = hashlib.sha256("\x1f".join((task, item.source, item.id)).encode()).hexdigest()[:32]
    return {
        "v": 1,
        "kind": "feedback",
        "id": f"fb-{name}",
        "task": task,
        "ts": utc_now(),
        "target": item.target(),
        "feedback": {"kind": item.kind, "value": item.plain_value(), "text": item.text},
        "source": item.source,
        "author": item.author,
        "source_id": item.id,
        "supersedes": item.supersedes,
    }


def parse_feedback(body: Any, config: Config, remembered: Remembered = lambda _answer: None) -> list[dict[str, Any]]:
    """The log records of a body; nothing is valid unless all of it is.

    Args:
        remembered: the task of an answer whose id is not ours, if it is remembered.

    Raises RequestError (400) naming item and field.
    """
    items = body if isinstance(body, list) else [body]
    if not 1 <= len(items) <= MAX_ITEMS:
        raise RequestError(f"a list holds 1 to {MAX_ITEMS} items, found {len(items)}", code="invalid_value")
    records = []
    for index, raw in enumerate(items):
        prefix = str(index) if isinstance(body, list) else ""
        if not isinstance(raw, dict):
            raise RequestError("feedback must be a JSON object", code="invalid_type", param=prefix or None)
        try:
            records.append(feedback_record(FeedbackItem.model_validate(raw), config, remembered))
        except ValidationError as error:
            raise from_validation(error, prefix) from None
        except RequestError as error:
            if prefix and error.param:
                error.param = f"{prefix}.{error.param}"
            raise
    return records


def _task(item: FeedbackItem, config: Config, remembered: Remembered) -> str:
    tasks = sorted(config.tasks)
    answered = None
    if item.interaction_id is not None:
        answered = remembered(item.interaction_id) or task_of(item.interaction_id, tasks)
    if answered == "":
        message = "interaction_id: this answer came from the base model; feedback teaches tasks only"
        raise RequestError(message, code="invalid_value", param="interaction_id")
    if item.task is not None and item.task not in config.tasks:
        raise RequestError(f"task: unknown; one of {', '.join(tasks)}", code="invalid_value", param="task")
    if item.task is not None and answered is not None and answered != item.task:
        raise RequestError(f"task: this answer belongs to `{answered}`", code="invalid_value", param="task")
    if answered is not None:
        return answered
    if item.task is not None:
        return item.task
    if len(tasks) == 1:
        return tasks[0]
    if item.interaction_id is not None and len(config.embedded) < len(tasks):
        return ""  # an engine that is not ours may have given this id; the task that has the answer takes it in
    message = f"task: required here, as the target does not tell it; one of {', '.join(tasks)}"
    raise RequestError(message, code="missing_required_parameter", param="task")


_VOICES: dict[str, Scope] = {"user": "feedback", "reviewer": "review"}
"""What a key needs to speak as one of these; for every other source it is ``operate``."""


def _demand_voice(principal: Principal, records: list[dict[str, Any]]) -> None:
    """Raise RequestError (403) unless the caller may speak as the source of each record."""
    for source in dict.fromkeys(record["source"] for record in records):
        needed = _VOICES.get(source, "operate")
        if not principal.allows(needed):
            message = f"source: this API key lacks the scope `{needed}`, without which it may not post as `{source}`"
            raise RequestError(message, status=403, code="missing_scope", param="source")


async def post_feedback(gateway: Gateway, request: Request) -> JSONResponse:
    """The endpoint. Answers 200 with the ids once everything is on disk."""
    principal = await gateway.keys.authorize(request.headers.get("authorization"), "feedback", "review")
    body = await read_json(request)
    records = parse_feedback(body, gateway.config, gateway.upstreams.task_of)
    _demand_voice(principal, records)
    try:
        futures = [asyncio.wrap_future(gateway.wal.append(record)) for record in records]
        # All are waited for, so that no failure is left behind unseen.
        for result in await asyncio.gather(*futures, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
    except StoreError:
        raise unavailable("The feedback could not be written to disk; post it again.", "log_unavailable") from None
    gateway.desk.note(records)
    for record in records:
        gateway.metrics.feedback.labels(record["task"] or UNKNOWN, record["feedback"]["kind"], record["source"]).inc()
    answers = [{"object": "feedback", "id": record["id"], "task": record["task"]} for record in records]
    return JSONResponse({"object": "list", "data": answers} if isinstance(body, list) else answers[0])
