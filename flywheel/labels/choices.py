"""The answers that a task chooses from, if it does: what a reviewer can name with one key."""

from __future__ import annotations

from flywheel.labels.versions import ERASED
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import query

MOST_CHOICES = 36
"""So many keys there are: digits and letters."""

LONGEST_CHOICE = 60
"""Characters; a longer answer is free text, not a choice."""

ENOUGH = 0.9
"""Share of the labels that the choices must make up: a few slips of users turn no choice into free text."""


def answer_choices(home: Home, registry: Registry, task: str) -> list[str]:
    """The distinct targets of a task's current labels in alphabetical order, or none where answers are free text.

    The most frequent are kept when there are more than `MOST_CHOICES`.
    """
    sql = (
        f"WITH latest AS (SELECT chosen FROM rows WHERE target_kind <> '{ERASED}'"
        " QUALIFY row_number() OVER (PARTITION BY target_kind, target_id ORDER BY seq DESC) = 1)"
        " SELECT trim(chosen) AS target, count(*) AS labels, sum(count(*)) OVER () AS total"
        " FROM latest WHERE trim(chosen) <> '' GROUP BY target ORDER BY labels DESC, target LIMIT $1"
    )
    found = query(home, registry, "labels", task, sql, [MOST_CHOICES]).to_pylist()
    kept = [row for row in found if len(row["target"]) <= LONGEST_CHOICE and "\n" not in row["target"]]
    if not kept or sum(row["labels"] for row in kept) < ENOUGH * int(kept[0]["total"]):
        return []
    return sorted(row["target"] for row in kept)
