"""How much there is to read, found by looking at file sizes only: what the intake sensor asks on every tick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.intake.sources import task_sources
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema


def unread_bytes(config: Config, home: Home, registry: Registry, task: str) -> int:
    """Bytes in the task's sources that no intake has looked at. Opens no file."""
    table = schema.sources
    with registry.read() as tx:
        rows = tx.rows(sa.select(table.c.source, table.c.position).where(table.c.task == task))
    positions = {row["source"]: row["position"].get("files", {}) for row in rows}
    return sum(
        _unread(path, positions.get(source.name, {}).get(label))
        for source in task_sources(config, home, task)
        for label, path in source.files
    )


def _unread(path: Path, position: dict[str, Any] | None) -> int:
    try:
        stat = path.stat()
    except OSError:
        return 0  # gone, or not readable now: intake itself says which
    if position is None:
        return stat.st_size
    if (stat.st_size, stat.st_mtime_ns, stat.st_ino) == (position["size"], position["mtime_ns"], position["inode"]):
        return 0  # seen as it is; a last line without its end is waited for
    same_file = stat.st_ino == position["inode"] and stat.st_size >= position["offset"]
    return stat.st_size - position["offset"] if same_file else stat.st_size
