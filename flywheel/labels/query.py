"""What people who label look at: the audit sample that nobody has judged yet, and what others disagree about."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from flywheel.config_labels import LabelPolicy
from flywheel.labels.evidence import current, read_evidence
from flywheel.labels.policy import make_label
from flywheel.labels.targets import answer_text, feedback_by_target
from flywheel.labels.verdict import CONFLICT
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import query

AUDIT, DISAGREEMENT = "audit", "disagreement"
"""Why an interaction waits for a reviewer."""


def review_queue(home: Home, registry: Registry, task: str, limit: int, policy: LabelPolicy) -> list[dict[str, Any]]:
    """What a reviewer should label next: audited interactions without trusted evidence, then disagreements.

    Immature feedback counts as well: a reviewer is not asked twice while the label waits.

    Returns rows ``{interaction_id, why, messages, answer}`` with the messages as a list, at most ``limit``, the oldest
    first within each reason.
    """
    now = datetime.now(UTC)
    judged: list[str] = []
    split: list[str] = []
    for target, rows in feedback_by_target(home, registry, task, policy):
        counting = current(rows, now)
        said = read_evidence(counting, target.answer, policy.edits)
        label = make_label(target, rows, policy, now)
        disagree = label is not None and CONFLICT in label["reasons"]
        if disagree:
            split.append(target.interaction_id)
        if not disagree and any(item.source in policy.gate_labels for item in said):
            judged.append(target.interaction_id)
    sql = (
        "SELECT interaction_id, request, response, audit FROM rows"
        " WHERE (audit AND status = 'ok' AND interaction_id NOT IN (SELECT unnest($1)))"
        " OR interaction_id IN (SELECT unnest($2))"
        " ORDER BY NOT audit, ts, interaction_id LIMIT $3"
    )
    return [
        {
            "interaction_id": row["interaction_id"],
            "why": DISAGREEMENT if row["interaction_id"] in split else AUDIT,
            "messages": json.loads(row["request"])["messages"],
            "answer": answer_text(json.loads(row["response"])),
        }
        for row in query(home, registry, "interactions", task, sql, [judged, split, limit]).to_pylist()
    ]
