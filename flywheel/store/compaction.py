"""Few large segments instead of many small ones, and the removal of files that nothing shows any more.

A stage that runs every few seconds writes a small segment each time; a query opens every one of them. Merging changes
which files hold the rows, never the rows.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
import sqlalchemy as sa

from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema
from flywheel.store.segments import register, unregister, visible, write_segment

SMALL_ROWS = 5_000
"""A segment with fewer rows may be merged."""

MERGE_AT = 16
"""How many small segments of one day bring about a merge."""

MERGE_BYTES = 64 * 2**20
"""Most bytes of rows, not compressed, that a merge holds; a segment with over a sixteenth of it is not small."""

GRACE_SECONDS = 3_600
"""How long a hidden file stays for readers that listed it before; no query takes longer."""


def compact(home: Home, registry: Registry, table: str, task: str) -> int:
    """Merge the small segments of every day that has gathered ``MERGE_AT``; returns how many files were hidden.

    The caller holds the lock of the stage that writes this table, so that no other writer is at work on it.
    """
    with registry.read() as tx:
        segments = visible(tx, table, task)
    by_day: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for segment in segments:
        if segment["rows"] < SMALL_ROWS:
            by_day[segment["day"]].append(segment)
    hidden = 0
    for day, small in sorted(by_day.items()):
        if len(small) < MERGE_AT:
            continue
        small.sort(key=lambda segment: (segment["first_seq"] or 0, segment["path"]))
        for paths in _groups(home, [segment["path"] for segment in small]):
            rows = [row for path in paths for row in pq.ParquetFile(home.data / path).read().to_pylist()]
            merged = write_segment(home, table, task, day, rows)
            with registry.write() as tx:
                unregister(tx, paths)
                register(tx, [merged])
            retire(home, [path for path in paths if path != merged.path])
            hidden += len(paths)
    return hidden


def _groups(home: Home, paths: Sequence[str]) -> list[list[str]]:
    """Neighbouring segments to merge: enough of them, and no more than memory should hold."""
    found: list[list[str]] = [[]]
    held = 0
    for path in paths:
        footer = pq.read_metadata(home.data / path)
        size = sum(footer.row_group(place).total_byte_size for place in range(footer.num_row_groups))
        if held + size > MERGE_BYTES or size > MERGE_BYTES // MERGE_AT:
            found.append([])
            held = 0
        if size <= MERGE_BYTES // MERGE_AT:
            found[-1].append(path)
            held += size
    return [group for group in found if len(group) >= MERGE_AT]


def retire(home: Home, paths: Sequence[str]) -> None:
    """Start the grace period of segment files that the registry no longer shows."""
    for path in paths:
        if (home.data / path).exists():
            os.utime(home.data / path)


def sweep(home: Home, registry: Registry, table: str, task: str, *, grace_seconds: float = GRACE_SECONDS) -> int:
    """Delete files of a table that no registry row names and that are past their grace; returns how many.

    These are merged or rewritten segments, and what a crash left between writing a file and registering it.
    """
    with registry.read() as tx:
        shown = {
            row["path"]
            for row in tx.rows(
                sa.select(schema.segments.c.path).where(
                    schema.segments.c.table == table, schema.segments.c.task == task
                )
            )
        }
    removed = 0
    for path in (home.data / table / f"task={task}").glob("day=*/*.parquet"):
        name = str(path.relative_to(home.data))
        if name not in shown and time.time() - path.stat().st_mtime > grace_seconds:
            path.with_suffix(".manifest.json").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def purge(home: Home, registry: Registry, table: str, task: str) -> int:
    """Delete every file of a table that no registry row names, half-written ones too, at once; returns how many.

    The caller holds the lock of the stage that writes this table.
    """
    with registry.read() as tx:
        shown = {home.data / segment["path"] for segment in visible(tx, table, task)}
    kept = shown | {path.with_suffix(".manifest.json") for path in shown}
    folder = home.data / table / f"task={task}"
    gone = [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in kept]
    for path in gone:
        path.unlink(missing_ok=True)
    return len(gone)
