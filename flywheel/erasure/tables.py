"""The bulk tables: rows go, label versions become tombstones, and no old file stays."""

from __future__ import annotations

from functools import partial
from typing import Any

from flywheel.erasure.work import Work
from flywheel.labels.versions import ERASED, reread_next_time, tombstone
from flywheel.store.compaction import purge
from flywheel.store.rewrite import Change, rewrite
from flywheel.store.tables import TABLES

Row = dict[str, Any]


def erase_rows(work: Work) -> None:
    """Take the person's rows out of every task's tables.

    The caller holds the intake and label locks. Quarantined records are known by what they mention, as far as they
    were kept.
    """
    for task in work.tasks:
        changes = _changes(work, task)
        assert changes.keys() == TABLES.keys()
        for table, change in changes.items():
            work.counts[table] += rewrite(
                work.home,
                work.registry,
                table,
                task,
                change,
                apply=work.apply,
                also=partial(reread_next_time, task=task),
            )
            if work.apply:
                purge(work.home, work.registry, table, task)


def _changes(work: Work, task: str) -> dict[str, Change]:
    scope = work.scope

    def call(row: Row) -> Row | None:
        if not scope.takes_call(task, row):
            return row
        work.counts["interactions_of_others"] += row["user_key"] not in ("", scope.user_key)
        return None

    def feedback(row: Row) -> Row | None:
        return None if scope.takes_feedback(task, row) else row

    def bad(row: Row) -> Row | None:
        return None if scope.mentioned(task, row["raw"]) else row

    def label(row: Row) -> Row | None:
        gone = scope.has(task, row["target_id"]) or scope.has_touched(task, row["target_id"])
        return tombstone(row) if gone and row["target_kind"] != ERASED else row

    return {"labels": label, "feedback": feedback, "orphans": feedback, "quarantine": bad, "interactions": call}
