"""The registry's row of an erasure: begun before anything else, done after everything else."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from flywheel.erasure.scope import Scope
from flywheel.errors import HomeBusy
from flywheel.loops.claims import live_loops
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.registry.erasures import ERASURES, NAMES, record_names


@dataclass(frozen=True)
class Begun:
    """An erasure under way. ``before`` is what earlier runs counted; ``resumed`` whether the last one was cut short."""

    erasure_id: str
    before: dict[str, int]
    resumed: bool


def earlier(tx: Transaction, user_key: str) -> dict[str, Any] | None:
    """The row of this person's erasure, if they were erased before."""
    return tx.row(sa.select(ERASURES).where(ERASURES.c.user_key == user_key))


def begin(registry: Registry, user_key: str) -> Begun:
    """Open the person's erasure: from here on intake drops them, and no loop starts.

    Raises HomeBusy while a loop runs: what it holds in memory could come back.
    """
    with registry.write() as tx:
        if running := live_loops(tx):
            raise HomeBusy(f"loop {running[0]['loop_id']} is running; wait for it, or stop it, then run this again")
        row = earlier(tx, user_key)
        if row is None:
            name = f"erasure-{uuid.uuid4().hex[:12]}"
            values = {"erasure_id": name, "user_key": user_key, "state": "running", "counts": {}, "tainted": []}
            tx.execute(sa.insert(ERASURES).values(**values, **tx.stamp()))
            return Begun(name, {}, False)
        _update(tx, row["erasure_id"], state="running")
        return Begun(row["erasure_id"], dict(row["counts"]), row["state"] == "running")


def load_names(tx: Transaction, scope: Scope, erasure_id: str) -> None:
    """Take what earlier runs found to belong to the person into ``scope``."""
    for row in tx.rows(sa.select(NAMES).where(NAMES.c.erasure_id == erasure_id)):
        (scope.gone if row["kind"] == "gone" else scope.touched)[row["task"]].add(row["name"])


def save_names(registry: Registry, scope: Scope, erasure_id: str) -> None:
    """Note by keyed hashes what belongs to the person, so that it is found when half of it is gone."""
    with registry.write() as tx:
        for kind, found in (("gone", scope.gone), ("touched", scope.touched)):
            for task, names in found.items():
                record_names(tx, task, dict.fromkeys(names, erasure_id), kind)


def note_counts(registry: Registry, begun: Begun, found: Counter[str]) -> dict[str, int]:
    """Add what this run found to the totals; a resumed run finds a part of what the one before has counted."""
    before = begun.before
    totals = {
        kind: max(before.get(kind, 0), found[kind]) if begun.resumed else before.get(kind, 0) + found[kind]
        for kind in sorted(before.keys() | (+found).keys())
    }
    with registry.write() as tx:
        _update(tx, begun.erasure_id, counts=totals)
    return totals


def finish(registry: Registry, erasure_id: str, tainted: list[dict[str, Any]]) -> None:
    """Close the erasure, and forget which interactions of others were touched."""
    with registry.write() as tx:
        tx.execute(sa.delete(NAMES).where(NAMES.c.erasure_id == erasure_id, NAMES.c.kind == "touched"))
        _update(tx, erasure_id, state="done", tainted=tainted)


def known_tasks(tx: Transaction) -> set[str]:
    """Tasks that left anything in the registry, whether or not they are still configured."""
    tables = (schema.segments, schema.sources, schema.datasets, schema.suites, schema.releases, schema.erased_names)
    return {row["task"] for table in tables for row in tx.rows(sa.select(table.c.task).distinct())} - {""}


def _update(tx: Transaction, erasure_id: str, **columns: Any) -> None:
    tx.execute(sa.update(ERASURES).where(ERASURES.c.erasure_id == erasure_id).values(**columns, **tx.stamp()))
