"""Changing rows of segments in place of adding some: what only an erasure does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq

from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction
from flywheel.store.segments import register, unregister, visible, write_segment

Change = Callable[[dict[str, Any]], dict[str, Any] | None]
"""A row as it was for one that stays, another row in its place, or None for one that goes."""


def rewrite(
    home: Home,
    registry: Registry,
    table: str,
    task: str,
    change: Change,
    *,
    apply: bool = True,
    also: Callable[[Transaction], None] = lambda tx: None,
) -> int:
    """Replace the segments in which ``change`` changes a row, all of a table or none; returns how many rows changed.

    Args:
        apply: False only counts.
        also: done in the same transaction, if any row changed.

    The caller holds the lock of the stage that writes this table, and purges the files that are hidden then.
    """
    with registry.read() as tx:
        segments = visible(tx, table, task)
    hidden, written, changed = [], [], 0
    for segment in segments:
        with pq.ParquetFile(home.data / segment["path"]) as file:
            rows: list[dict[str, Any]] = file.read().to_pylist()
        after = [change(row) for row in rows]
        count = sum(new is not old for new, old in zip(after, rows, strict=True))
        if not count:
            continue
        changed += count
        if apply:
            hidden.append(segment["path"])
            if kept := [row for row in after if row is not None]:
                written.append(write_segment(home, table, task, segment["day"], kept))
    if hidden:
        with registry.write() as tx:
            unregister(tx, hidden)
            register(tx, written)
            also(tx)
    return changed
