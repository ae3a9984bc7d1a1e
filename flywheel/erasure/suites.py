"""Suites: each that judges by the person's words gets a successor without these items."""

from __future__ import annotations

import sqlalchemy as sa

from flywheel.erasure.work import Work, readable
from flywheel.evaluation.items import TOMBSTONE, Suite, SuiteItem, bury_suite, load_suite, make_suite, write_suite
from flywheel.store.registry import Transaction, schema

SUITES, ITEMS = schema.suites, schema.suite_items


def erase_items(work: Work) -> None:
    """Replace every suite with items of the person, or with answers that they gave, and forget that items of theirs
    were drawn. Score files and decisions stand: they name items by ordinal only."""
    for path in sorted(work.home.suites.glob("*.json")):
        if readable(path).get("kind") == TOMBSTONE:
            continue
        suite = load_suite(work.home, path.stem)
        kept = [item for item in suite.items if not _goes(work, suite.task, item)]
        removed = len(suite.items) - len(kept)
        if removed:
            work.suites[suite.digest] = removed
            work.counts["suites"] += 1
            work.counts["suite_items"] += removed
        if removed and work.apply:
            _replace(work, suite, make_suite(suite.task, suite.kind, kept), removed)
    if work.apply:
        for left in work.home.suites.glob(".*.tmp"):
            left.unlink(missing_ok=True)
        with work.registry.write() as tx:
            _forget(tx, work)


def _goes(work: Work, task: str, item: SuiteItem) -> bool:
    return work.scope.has(task, item.interaction_id, item.conversation_id) or work.scope.has_touched(
        task, item.interaction_id
    )


def _replace(work: Work, old: Suite, new: Suite, removed: int) -> None:
    write_suite(work.home, new)
    with work.registry.write() as tx:
        work.bury(tx, "suite", old.digest, task=old.task, successor=new.digest, rows=removed)
        row = tx.row(sa.select(SUITES).where(SUITES.c.digest == old.digest))
        if row is not None:
            _hand_over(tx, row, new)
    bury_suite(work.home, old.digest, successor=new.digest, items_removed=removed)


def _hand_over(tx: Transaction, old: dict[str, object], new: Suite) -> None:
    """The new suite judges on where the old one did, as worn as it was."""
    known = tx.row(sa.select(SUITES).where(SUITES.c.digest == new.digest))
    if known is None:
        row = {"digest": new.digest, "task": new.task, "kind": new.kind, "items": len(new.items)}
        tx.execute(sa.insert(SUITES).values(**row, state=old["state"], uses=old["uses"], **tx.stamp()))
    elif old["state"] == "live":
        tx.execute(sa.update(SUITES).where(SUITES.c.digest == new.digest).values(state="live"))
    tx.execute(sa.update(SUITES).where(SUITES.c.digest == old["digest"]).values(state="retired"))


def _forget(tx: Transaction, work: Work) -> None:
    for task in work.tasks:
        for row in tx.rows(sa.select(ITEMS.c.interaction_id).where(ITEMS.c.task == task)):
            if work.scope.has(task, row["interaction_id"]):
                mine = sa.and_(ITEMS.c.task == task, ITEMS.c.interaction_id == row["interaction_id"])
                tx.execute(sa.delete(ITEMS).where(mine))
