"""What a log format makes of one line: a call or a piece of feedback, not yet checked against what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

FEEDBACK_KINDS = frozenset(
    {"thumb", "rating", "label", "correction", "preference", "comment", "outcome", "regenerate", "accept"}
)
FEEDBACK_SOURCES = frozenset({"user", "reviewer", "judge", "verifier", "implicit"})


class BadRecord(ValueError):
    """This record goes to quarantine. The message is a fixed reason that never quotes the record."""


class SkippedRecord(ValueError):
    """This record is none of this task's business. The message is the fixed name of the rule."""


class NothingLeft(SkippedRecord):
    """Its own writer emptied this record, so that nothing in it tells its format any more."""


@dataclass(frozen=True)
class Context:
    """What a format may know besides the record.

    Args:
        task: the task that is taking records in.
        tasks: every configured task, to tell a neighbour's records from foreign workload names.
    """

    task: str
    tasks: frozenset[str]


@dataclass(slots=True)
class Choice:
    """One answer of a call: a cleaned assistant message and why it ended."""

    index: int
    message: Json
    finish_reason: str | None


@dataclass(slots=True)
class InteractionRecord:
    """One call. Several choices become several rows; they still are one record.

    Not frozen: that would cost an import of a million calls seconds for its many fields.
    """

    call_id: str | None  # the source's own id; None makes an id from the content
    ts: Any  # as found; read by `times.parse_time`
    messages: list[Json]
    choices: list[Choice]
    tools: list[Any] | None = None
    params: Json = field(default_factory=dict)
    conversation_id: str | None = None
    parent_id: str | None = None
    user: str | None = None
    model: str = ""
    release: str = ""
    stream: bool = False
    status: str = "ok"
    cache_hit: bool = False
    usage: Json = field(default_factory=dict)
    latency_ms: float | None = None
    cost: float | None = None
    metadata: Json = field(default_factory=dict)


@dataclass(slots=True)
class SecondhandRecord(InteractionRecord):
    """A call as an onlooker tells it: where its id is known, the record that is there stands."""


@dataclass(frozen=True)
class FeedbackRecord:
    """One piece of feedback, its target as the sender named it."""

    feedback_id: str | None
    ts: Any
    target_kind: str  # interaction | conversation | either (whichever has that id) | metadata
    target: str  # the id; for metadata, canonical JSON of {"key", "value"}
    kind: str
    value: Any
    text: str
    source: str
    author: str | None
    source_id: str | None
    supersedes: str


@dataclass(frozen=True)
class Dropped:
    """A part of an input record that cannot be used while others can, and the fixed reason, which the report counts."""

    reason: str


Record = InteractionRecord | FeedbackRecord

Parsed = Record | Sequence[Record | Dropped]
"""What one input record holds: one record, or several with the interactions first, never none. The input record is what
is counted: kept when anything in it was new, a duplicate when all of it was there already."""
