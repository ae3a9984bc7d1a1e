"""What the store says about a task's review: the queue as plain turns, the answers to choose from, who labelled today.

Everything here reads files and belongs on a thread.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flywheel.config import Config
from flywheel.labels import answer_choices, review_queue
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import query

QUEUE_LIMIT = 500
"""So many of the queue are read: more than a person labels before the next look."""

LONGEST_TURN = 20_000
"""Characters of a message that are shown. The answer is always whole: agreeing with it means all of it."""

_JUDGING = ("label", "thumb", "correction", "rating", "outcome")


@dataclass(frozen=True)
class Said:
    """A reviewer's feedback, as far as counting needs it.

    Args:
        judges: whether it says something about the answer.
        supersedes: the feedback that it takes back, or "".
    """

    feedback_id: str
    interaction_id: str
    author_key: str
    judges: bool
    supersedes: str

    @classmethod
    def of(cls, feedback_id: str, interaction_id: str, author_key: str, kind: str, supersedes: str | None) -> Said:
        """From the columns of feedback."""
        return cls(feedback_id, interaction_id, author_key, kind in _JUDGING, supersedes or "")


@dataclass(frozen=True)
class Reading:
    """One look into the store.

    Args:
        items: rows ``{interaction_id, why, turns, answer}``, at most `QUEUE_LIMIT`; turns are ``{role, text}``.
        choices: the answers that the task chooses from; empty where they are free text.
        today: what reviewers have said since midnight, UTC.
        known: which of the feedback ids that were asked about are in the store.
    """

    items: list[dict[str, Any]]
    choices: list[str]
    today: list[Said]
    known: frozenset[str]


def read_review(config: Config, home: Home, registry: Registry, task: str, fresh: Collection[str]) -> Reading:
    """Look into the store.

    Args:
        fresh: ids of feedback that may or may not be in the store yet.
    """
    # Before the queue: feedback that arrives in between is then missing here and counts as fresh, not as neither.
    today, known = _reviewers_feedback(home, registry, task, fresh)
    queue = review_queue(home, registry, task, QUEUE_LIMIT, config.task(task).labels)
    items = [
        {
            "interaction_id": row["interaction_id"],
            "why": row["why"],
            "turns": [plain_turn(message) for message in row["messages"]],
            "answer": row["answer"],
        }
        for row in queue
    ]
    return Reading(items, answer_choices(home, registry, task), today, known)


def standing(said: Iterable[Said]) -> list[Said]:
    """The feedback that judges an answer and that its author has not taken back."""
    every = list(said)
    gone = {(one.author_key, one.supersedes) for one in every}
    return [one for one in every if one.judges and (one.author_key, one.feedback_id) not in gone]


def plain_turn(message: Any) -> dict[str, str]:
    """A message of any shape as ``{role, text}``: what is no text by its kind, a tool call by name and arguments."""
    if not isinstance(message, dict):
        return {"role": "", "text": _shortened(_as_text(message))}
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    said = [_part(part) for part in parts if part]
    said += [_call(call) for call in message.get("tool_calls") or []]
    return {"role": str(message.get("role", "")), "text": _shortened("\n".join(said))}


def _reviewers_feedback(
    home: Home, registry: Registry, task: str, fresh: Collection[str]
) -> tuple[list[Said], frozenset[str]]:
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    sql = (
        "SELECT feedback_id, target_id, author_key, kind, supersedes, ts >= $1 AS today FROM rows"
        " WHERE source = 'reviewer' AND target_kind = 'interaction'"
        " AND (ts >= $1 OR feedback_id IN (SELECT unnest($2)))"
    )
    rows = query(home, registry, "feedback", task, sql, [midnight, sorted(fresh)]).to_pylist()
    today = [
        Said.of(row["feedback_id"], row["target_id"], row["author_key"], row["kind"], row["supersedes"])
        for row in rows
        if row["today"]
    ]
    return today, frozenset(row["feedback_id"] for row in rows if row["feedback_id"] in fresh)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text")
        return text if isinstance(text, str) else f"[{part.get('type', 'not text')}]"
    return _as_text(part)


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return _as_text(call)
    return f"{function.get('name', '')}({function.get('arguments', '')})"


def _as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shortened(text: str) -> str:
    more = len(text) - LONGEST_TURN
    return text if more <= 0 else f"{text[:LONGEST_TURN]}\n[... {more} more characters]"
