"""Reading an imported place once more from its start, after an import under a wrong format or wrong columns.

First quarantine is replayed under the format of today: what can be read now leaves it, and is counted as replayed. Then
the place is read from its start: what is stored is a duplicate, what stays in quarantine is not put there twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.config_logs import ColumnMap
from flywheel.intake.backfill import IN_QUARANTINE
from flywheel.intake.batch import Item, Rejected
from flywheel.intake.mapping import Select
from flywheel.intake.quarantine import entries, places, storable
from flywheel.intake.reading import CHUNK_RECORDS, Progress
from flywheel.intake.replay import RUN, ReplayReport, replay
from flywheel.intake.report import SourceReport
from flywheel.intake.run import import_path, import_source
from flywheel.store.home import Home
from flywheel.store.registry import Registry


def import_again(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    path: str | Path,
    *,
    fmt: str = "auto",
    columns: ColumnMap | None = None,
    run: str = "import",
    replay_run: str = RUN,
    progress: Progress | None = None,
    workers: int = 1,
    waits: Callable[[], None] | None = None,
) -> tuple[ReplayReport, SourceReport]:
    """Import a place as if it had never been read: what became of its quarantine, and of its records.

    Safe to kill at any instant and to run again. Raises IntakeError as `flywheel.intake.import_path` does.
    """
    read: dict[str, Any] = {"fmt": fmt, "columns": columns, "progress": progress, "waits": waits}
    source = import_source(config, path, fmt, columns)
    replayed = replay(config, home, registry, task, source=source.name, run=replay_run, **read)
    select = _not_twice(home, registry, task, source.name)
    return replayed, import_path(
        config, home, registry, task, path, run=run, workers=workers, anew=True, again=select, **read
    )


def _not_twice(home: Home, registry: Registry, task: str, source: str) -> Select | None:
    """Skips records that lie in quarantine, told by their place and what they hold; None when none do."""
    found = places(home, registry, task, source=source)
    there: set[tuple[str, int, bytes]] = set()
    for start in range(0, len(found), CHUNK_RECORDS):
        rows = entries(home, registry, task, found[start : start + CHUNK_RECORDS])
        there |= {(row["source"], row["source_offset"], _digest(row["raw"])) for row in rows}

    def select(item: Item) -> Item:
        if (item.file, item.offset, _digest(storable(item.raw))) in there:
            return Item(item.file, item.offset, item.raw, Rejected("skipped", IN_QUARANTINE))
        return item

    return select if there else None


def _digest(raw: str) -> bytes:
    return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).digest()[:16]
