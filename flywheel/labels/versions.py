"""Label versions: numbered without gaps per task, never changed once written, the latest of a target counts.

Only an erasure replaces versions, by rows that keep the number and say nothing (`tombstone`); readers pass over them.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from flywheel.errors import StoreError
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.segments import query, register, write_segment

ERASED = "erased"
"""Target kind of a version that was erased."""


def tombstone(row: dict[str, Any]) -> dict[str, Any]:
    """What stays of an erased version: its number, so that the numbering has no gap."""
    return {
        "seq": row["seq"],
        "task": row["task"],
        "target_kind": ERASED,
        "target_id": f"{ERASED}/{row['seq']}",
        "use": "none",
    }


def last_seq(tx: Transaction, task: str) -> int:
    """Number of the newest label version of a task; 0 when there is none."""
    table = schema.segments
    mine = sa.and_(table.c.table == "labels", table.c.task == task)
    return int(tx.scalar(sa.select(sa.func.max(table.c.last_seq)).where(mine)) or 0)


def pending_versions(tx: Transaction, task: str, after_seq: int) -> int:
    """How many label versions are numbered above ``after_seq``. Exact, as the numbers have no gaps."""
    return max(0, last_seq(tx, task) - after_seq)


def current_labels(home: Home, registry: Registry, task: str, *, up_to_seq: int | None = None) -> list[dict[str, Any]]:
    """The latest version of each target's label with ``seq`` at most ``up_to_seq`` (all when None), by ``seq``.

    Rows have the columns of the labels table.
    """
    sql = (
        f"SELECT * FROM rows WHERE target_kind <> '{ERASED}' AND ($1 IS NULL OR seq <= $1)"
        " QUALIFY row_number() OVER (PARTITION BY target_kind, target_id ORDER BY seq DESC) = 1 ORDER BY seq"
    )
    rows: list[dict[str, Any]] = query(home, registry, "labels", task, sql, [up_to_seq]).to_pylist()
    return rows


def current_digests(home: Home, registry: Registry, task: str) -> dict[str, str]:
    """The digest of each target's latest label."""
    sql = (
        f"SELECT target_id, arg_max(digest, seq) AS digest FROM rows WHERE target_kind <> '{ERASED}' GROUP BY target_id"
    )
    return {row["target_id"]: row["digest"] for row in query(home, registry, "labels", task, sql).to_pylist()}


def append_versions(
    home: Home, registry: Registry, task: str, labels: list[dict[str, Any]], position: dict[str, Any]
) -> int:
    """Number labels, write them as one segment and make it visible together with the stage's position.

    The caller holds the task's label lock and gives the labels in the order in which they are to be numbered. Nothing
    is visible before the transaction; a segment that a crash left behind is written again under the same name.

    Returns the newest number. Raises StoreError when another writer has numbered labels in the meantime.
    """
    with registry.read() as tx:
        base = last_seq(tx, task)
    rows = [label | {"seq": base + place} for place, label in enumerate(labels, 1)]
    written = []
    if rows:
        day = max(row["matured_at"] for row in rows).strftime("%Y-%m-%d")
        written.append(write_segment(home, "labels", task, day, rows))
    with registry.write() as tx:
        if last_seq(tx, task) != base:
            raise StoreError(f"labels of {task}: another process numbers them without holding the lock; run again")
        register(tx, written)
        store_position(tx, task, position)
    return base + len(rows)


SOURCE = "#labels"
"""Under this name the label stage keeps its own position among a task's sources."""


def load_position(tx: Transaction, task: str, stage: str = SOURCE) -> dict[str, Any]:
    """What the label stage, or one that speaks before it, stored last; empty at first."""
    table = schema.sources
    found = tx.scalar(sa.select(table.c.position).where(table.c.task == task, table.c.source == stage))
    return dict(found) if found else {}


def store_position(tx: Transaction, task: str, position: dict[str, Any], stage: str = SOURCE) -> None:
    """Store the stage's position."""
    table = schema.sources
    mine = sa.and_(table.c.task == task, table.c.source == stage)
    values = {"position": position, "watermark": "", **tx.stamp()}
    if not tx.execute(sa.update(table).where(mine).values(**values)):
        tx.execute(sa.insert(table).values(task=task, source=stage, **values))


def reread_next_time(tx: Transaction, task: str) -> None:
    """Make the next run of the label stage look at all feedback again; its clock still does not go back."""
    if position := load_position(tx, task):
        store_position(tx, task, position | {"seen": ""})
