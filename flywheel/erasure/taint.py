"""What has learned from erased rows: a join of tombstones, checkpoints and releases, with the way back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from flywheel.release.pointer import champion, history
from flywheel.store.digests import short
from flywheel.store.registry import Transaction, schema
from flywheel.store.registry.erasures import ERASURES, tainted_checkpoints


@dataclass(frozen=True)
class TaskTaint:
    """What of a task has learned from erased rows. Checkpoints and decisions stand; this is only known of them.

    Args:
        releases: names of the releases of these checkpoints; none of them can be promoted.
        champion: the name of the champion, if it is among them.
        way_back: commands to give, in order; none when the champion is not among them.
    """

    task: str
    checkpoints: list[str]
    releases: list[str]
    champion: str | None
    way_back: list[str]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def task_taints(
    tx: Transaction, tasks: Sequence[str], *, erasure: str | None = None, also: Collection[str] = ()
) -> list[TaskTaint]:
    """The taint of each task that has any; ``erasure`` and ``also`` as for ``tainted_checkpoints``."""
    taints = [_taint(tx, task, tainted_checkpoints(tx, task, erasure=erasure, also=also)) for task in tasks]
    return [taint for taint in taints if taint.checkpoints]


def list_erasures(tx: Transaction, tasks: Sequence[str]) -> list[dict[str, Any]]:
    """Every erasure, oldest first: what it took, and what still is that has learned from it."""
    return [
        {
            "erasure_id": row["erasure_id"],
            "user_key": row["user_key"],
            "state": row["state"],
            "at": row["at"],
            "actor": row["actor"],
            "counts": row["counts"],
            "tainted": [taint.to_json() for taint in task_taints(tx, tasks, erasure=row["erasure_id"])],
        }
        for row in tx.rows(sa.select(ERASURES).order_by(ERASURES.c.at, ERASURES.c.erasure_id))
    ]


def _taint(tx: Transaction, task: str, checkpoints: frozenset[str]) -> TaskTaint:
    table = schema.releases
    rows = tx.rows(sa.select(table.c.digest, table.c.checkpoint).where(table.c.task == task).order_by(table.c.at))
    bad = [row["digest"] for row in rows if row["checkpoint"] in checkpoints]
    now = champion(tx, task)
    serving = now.release if now is not None and now.release in bad else None
    return TaskTaint(
        task=task,
        checkpoints=sorted(checkpoints),
        releases=[_name(task, release) for release in bad],
        champion=_name(task, serving) if serving else None,
        way_back=_way_back(tx, task, bad) if serving else [],
    )


def _way_back(tx: Transaction, task: str, bad: Collection[str]) -> list[str]:
    """The newest earlier champion that has not learned from the rows, and a loop that trains from it on what remains.

    Every task begins with its base model as champion, so there is one, unless this environment was begun otherwise.
    """
    clean = [move["release"] for move in history(tx, task) if move["release"] not in bad]
    if not clean:
        return [f"flywheel train --task {task} --data FILE"]
    return [f"flywheel rollback --task {task} --to {short(clean[-1])}", f"flywheel loop run --task {task}"]


def _name(task: str, release: str) -> str:
    return f"{task}@{short(release)}"
