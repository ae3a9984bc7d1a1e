"""What each piece of feedback is about, read from the store without the prompts.

Feedback on a conversation is about its last turn at that moment: the newest turn that is not later than the feedback,
or the first turn when the clock puts the feedback before all of them. It then weighs like feedback on that turn. An
outcome of a conversation is about each of its turns up to then, if the policy says so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from flywheel.config_labels import LabelPolicy
from flywheel.labels.evidence import Row
from flywheel.labels.signs import begins, find_signs
from flywheel.labels.verdict import Target
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import query, read_rows

_COLUMNS = "interaction_id, user_key, ts, ts_quality, response, status, audit"


def feedback_by_target(
    home: Home, registry: Registry, task: str, policy: LabelPolicy
) -> list[tuple[Target, list[Row]]]:
    """Every interaction about which something is said, with that, in order of (ts, interaction id).

    What users did counts as said, too: rows of source ``implicit`` that `signs` derives are among the feedback.
    """
    feedback = read_rows(home, registry, "feedback", task, "feedback_id")
    direct = {row["target_id"] for row in feedback if row["target_kind"] == "interaction"}
    talks = {row["target_id"] for row in feedback if row["target_kind"] == "conversation"}
    turns = _turns(home, registry, task, talks)
    about: dict[str, list[Row]] = defaultdict(list)
    for row in feedback:
        for own in _interactions(row, turns, policy):
            about[own].append(row)
    signs = find_signs(home, registry, task, about.keys() | direct, policy.phrases)
    for own, rows in signs.rows.items():
        about[own] += rows
    wanted = sorted({*about, *(signs.before[own] for own in about if own in signs.before)})
    sql = f"SELECT {_COLUMNS} FROM rows WHERE interaction_id IN (SELECT unnest($1))"
    found = query(home, registry, "interactions", task, sql, [wanted]).to_pylist() if wanted else []
    by_id = {row["interaction_id"]: row for row in found}
    targets = []
    for own, rows in about.items():
        if own in by_id:
            before = by_id.get(signs.before.get(own, ""))
            targets.append((_target(by_id[own], task, policy, before), rows))
    return sorted(targets, key=lambda pair: (pair[0].ts, pair[0].interaction_id))


def target_rows(home: Home, registry: Registry, task: str, ids: list[str], policy: LabelPolicy) -> list[Target]:
    """The named interactions as label targets, in order of id."""
    sql = f"SELECT {_COLUMNS} FROM rows WHERE interaction_id IN (SELECT unnest($1)) ORDER BY interaction_id"
    found = query(home, registry, "interactions", task, sql, [ids]).to_pylist()
    return [_target(row, task, policy) for row in found]


def answers_by_user(home: Home, registry: Registry, task: str, users: Collection[str]) -> dict[str, int]:
    """How many answers each of some users got."""
    sql = (
        "SELECT user_key, count(*) AS answers FROM rows WHERE choice_index = 0 AND user_key IN (SELECT unnest($1))"
        " GROUP BY user_key"
    )
    wanted = sorted(set(users) - {""})
    rows = query(home, registry, "interactions", task, sql, [wanted]).to_pylist() if wanted else []
    return {row["user_key"]: row["answers"] for row in rows}


def answer_text(response: dict[str, Any]) -> str:
    """The text of a stored response; "" for tool calls and for anything that is not text."""
    content = response["message"].get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _turns(home: Home, registry: Registry, task: str, talks: set[str]) -> dict[str, list[Row]]:
    """The turns of some conversations, in their order."""
    found: dict[str, list[Row]] = defaultdict(list)
    if talks:
        sql = (
            "SELECT interaction_id, conversation_id, ts FROM rows WHERE choice_index = 0"
            " AND conversation_id IN (SELECT unnest($1)) ORDER BY turn_index, interaction_id"
        )
        for row in query(home, registry, "interactions", task, sql, [sorted(talks)]).to_pylist():
            found[row["conversation_id"]].append(row)
    return found


def _interactions(row: Row, turns: Mapping[str, Sequence[Row]], policy: LabelPolicy) -> list[str]:
    """The interactions that a piece of feedback is about."""
    target: str = row["target_id"]
    if row["target_kind"] != "conversation" or target not in turns:
        return [target]
    ordered = turns[target]
    before = [turn["interaction_id"] for turn in ordered if turn["ts"] <= row["ts"]] or [ordered[0]["interaction_id"]]
    return before if row["kind"] == "outcome" and policy.conversation_outcome == "every" else before[-1:]


def _target(row: Row, task: str, policy: LabelPolicy, before: Row | None = None) -> Target:
    response = json.loads(row["response"])
    whole = row["status"] == "ok"
    answer = answer_text(response) if whole else ""
    earlier = answer_text(json.loads(before["response"])) if before is not None else ""
    message = response["message"]
    refused = bool(message.get("refusal")) or response["finish_reason"] == "content_filter"
    return Target(
        interaction_id=row["interaction_id"],
        task=task,
        ts=row["ts"],
        trusted_time=row["ts_quality"] == "ok",
        answer=answer,
        audit=row["audit"],
        calls_tools=whole and bool(message.get("tool_calls")),
        refused=whole and (refused or begins(answer, policy.phrases.refusals)),
        user_key=row["user_key"] or "",
        before=earlier if earlier.strip() != answer.strip() else "",
    )
