"""What the registry knows of erasures, as far as every stage must ask: who is gone, and what has learned from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from flywheel.errors import HomeBusy
from flywheel.store.registry import schema
from flywheel.store.registry.database import Transaction

ERASURES = schema.erasures
NAMES = schema.erased_names
TOMBSTONES = schema.tombstones


def erased_users(tx: Transaction) -> dict[str, str]:
    """Erasure id by the keyed hash of each erased user, unfinished erasures included."""
    rows = tx.rows(sa.select(ERASURES.c.user_key, ERASURES.c.erasure_id))
    return {row["user_key"]: row["erasure_id"] for row in rows}


def erased_names(tx: Transaction, task: str) -> dict[str, str]:
    """Erasure id by the keyed hash of each interaction, conversation and feedback that went with an erased user."""
    gone = sa.and_(NAMES.c.task == task, NAMES.c.kind == "gone")
    return {row["name"]: row["erasure_id"] for row in tx.rows(sa.select(NAMES.c.name, NAMES.c.erasure_id).where(gone))}


def record_names(tx: Transaction, task: str, names: Mapping[str, str], kind: str = "gone") -> None:
    """Note keyed hashes of ids with the erasure they went with; known ones stay, but ``touched`` becomes ``gone``."""
    if not names:
        return
    table = sa.select(NAMES.c.name, NAMES.c.kind).where(NAMES.c.task == task)
    known = {row["name"]: row["kind"] for row in tx.rows(table)}
    fresh = [
        {"task": task, "name": name, "kind": kind, "erasure_id": erasure, **tx.stamp()}
        for name, erasure in sorted(names.items())
        if name not in known
    ]
    tx.execute(sa.insert(NAMES), fresh)
    if kind == "gone":
        for name in sorted(names.keys() & {name for name, was in known.items() if was == "touched"}):
            mine = sa.and_(NAMES.c.task == task, NAMES.c.name == name)
            tx.execute(sa.update(NAMES).where(mine).values(kind="gone"))


def unfinished_erasures(tx: Transaction) -> list[str]:
    """Ids of erasures that have begun and not ended."""
    running = sa.select(ERASURES.c.erasure_id).where(ERASURES.c.state == "running").order_by(ERASURES.c.at)
    return [row["erasure_id"] for row in tx.rows(running)]


def refuse_while_erasing(tx: Transaction, what: str) -> None:
    """Raise HomeBusy while an erasure is unfinished: ``what`` could bring back rows that it has taken away."""
    if unfinished := unfinished_erasures(tx):
        raise HomeBusy(
            f"{what}: erasure {unfinished[0]} is under way, or was interrupted; wait for it, or run `flywheel erase` "
            "for the same user again to finish it"
        )


def tainted_checkpoints(
    tx: Transaction, task: str, *, erasure: str | None = None, also: Collection[str] = ()
) -> frozenset[str]:
    """Checkpoints of a task that have learned from rows erased since, themselves or through a parent.

    Args:
        erasure: only rows that this erasure took.
        also: datasets that count as if training rows of theirs had been erased.
    """
    bad = _tainted_datasets(tx, task, erasure) | set(also)
    table = schema.checkpoints
    rows = tx.rows(sa.select(table.c.digest, table.c.parent, table.c.dataset).where(table.c.task == task))
    children: dict[str | None, list[str]] = defaultdict(list)
    for row in rows:
        children[row["parent"]].append(row["digest"])
    found: set[str] = set()
    waiting = [row["digest"] for row in rows if row["dataset"] in bad]
    while waiting:
        digest = waiting.pop()
        if digest not in found:
            found.add(digest)
            waiting.extend(children[digest])
    return frozenset(found)


def _tainted_datasets(tx: Transaction, task: str, erasure: str | None) -> set[str]:
    """Datasets that lost training rows, at once or when their successors did."""
    mine = sa.and_(TOMBSTONES.c.kind == "dataset", TOMBSTONES.c.task == task)
    rows = {row["digest"]: row for row in tx.rows(sa.select(TOMBSTONES).where(mine))}
    found = set()
    for digest in rows:
        at: str | None = digest
        while at in rows:
            if rows[at]["train_rows_removed"] and erasure in (None, rows[at]["erasure_id"]):
                found.add(digest)
                break
            at = rows[at]["successor"]
    return found
