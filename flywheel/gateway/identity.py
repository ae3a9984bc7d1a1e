"""Interaction ids: random, except that the first eight hex digits tell the task.

So feedback that brings nothing but the id of an answer finds its task again after any number of restarts, without
a table of past answers.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable

_OURS = re.compile(r"chatcmpl-([0-9a-f]{8})[0-9a-f]{24}(?:#\d+)?\Z")


def interaction_id(task: str) -> str:
    """A new id for an answer of ``task`` ("" for the base model): ``chatcmpl-`` and 32 hex digits."""
    return f"chatcmpl-{_mark(task)}{secrets.token_hex(12)}"


def task_of(interaction: str, tasks: Iterable[str]) -> str | None:
    """Which of ``tasks`` (or "", the base model) an id was made for; None for ids that are not ours."""
    ours = _OURS.match(interaction)
    if ours is None:
        return None
    return next((task for task in (*tasks, "") if _mark(task) == ours[1]), None)


def _mark(task: str) -> str:
    return hashlib.sha256(b"interaction|" + task.encode()).hexdigest()[:8]
