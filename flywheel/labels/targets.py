"""Which interaction each piece of feedback is about, read from the store without the prompts.

Feedback on a conversation is about its last turn at that moment: the newest turn that is not later than the feedback,
or the first turn when the clock puts the feedback before all of them. It then weighs like feedback on that turn.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from flywheel.labels.evidence import Row
from flywheel.labels.policy import Target
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import query, read_rows

_COLUMNS = "interaction_id, conversation_id, choice_index, turn_index, ts, ts_quality, response, status, audit"


def feedback_by_target(home: Home, registry: Registry, task: str) -> list[tuple[Target, list[Row]]]:
    """Every interaction that has feedback, with that feedback, in order of (ts, interaction id)."""
    feedback = read_rows(home, registry, "feedback", task, "feedback_id")
    direct = sorted({row["target_id"] for row in feedback if row["target_kind"] == "interaction"})
    talks = sorted({row["target_id"] for row in feedback if row["target_kind"] == "conversation"})
    sql = (
        f"SELECT {_COLUMNS} FROM rows WHERE interaction_id IN (SELECT unnest($1))"
        " OR (choice_index = 0 AND conversation_id IN (SELECT unnest($2)))"
    )
    found = query(home, registry, "interactions", task, sql, [direct, talks]).to_pylist() if feedback else []
    by_id = {row["interaction_id"]: row for row in found}
    turns: dict[str, list[Row]] = defaultdict(list)
    wanted = set(talks)
    for row in found:
        if row["conversation_id"] in wanted and row["choice_index"] == 0:
            turns[row["conversation_id"]].append(row)
    about: dict[str, list[Row]] = defaultdict(list)
    for row in feedback:
        about[_interaction(row, turns)].append(row)
    targets = [(_target(by_id[own], task), rows) for own, rows in about.items() if own in by_id]
    return sorted(targets, key=lambda pair: (pair[0].ts, pair[0].interaction_id))


def target_rows(home: Home, registry: Registry, task: str, ids: list[str]) -> list[Target]:
    """The named interactions as label targets, in order of id."""
    sql = f"SELECT {_COLUMNS} FROM rows WHERE interaction_id IN (SELECT unnest($1)) ORDER BY interaction_id"
    return [_target(row, task) for row in query(home, registry, "interactions", task, sql, [ids]).to_pylist()]


def answer_text(response: dict[str, Any]) -> str:
    """The text of a stored response; "" for tool calls and for anything that is not text."""
    content = response["message"].get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _interaction(row: Row, turns: dict[str, list[Row]]) -> str:
    target: str = row["target_id"]
    if row["target_kind"] != "conversation" or target not in turns:
        return target
    ordered = sorted(turns[target], key=lambda turn: (turn["turn_index"], turn["interaction_id"]))
    before = [turn for turn in ordered if turn["ts"] <= row["ts"]]
    last: str = (before[-1] if before else ordered[0])["interaction_id"]
    return last


def _target(row: Row, task: str) -> Target:
    answer = answer_text(json.loads(row["response"])) if row["status"] == "ok" else ""
    trusted = row["ts_quality"] == "ok"
    return Target(row["interaction_id"], task, row["ts"], trusted, answer, row["audit"])
