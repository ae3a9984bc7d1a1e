"""How much there is to read, found by looking at file sizes only: what the intake sensor asks on every tick."""

from __future__ import annotations

import logging
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.errors import IntakeError
from flywheel.intake.places import Readable
from flywheel.intake.sources import UNREAD, Source, left, task_sources
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

_log = logging.getLogger(__name__)


def unread_bytes(config: Config, home: Home, registry: Registry, task: str, source: str | None = None) -> int:
    """Bytes in the task's sources, or in the one of this name, that no intake has looked at.

    Opens no file, and lists every place once. One that cannot be reached counts nothing and is logged: intake itself
    fails on it.
    """
    table = schema.sources
    with registry.read() as tx:
        rows = tx.rows(sa.select(table.c.source, table.c.position).where(table.c.task == task))
    positions = {row["source"]: row["position"].get("files", {}) for row in rows}
    return sum(
        _unread(file, positions.get(found.name, {}).get(label))
        for found in task_sources(config, home, task)
        if source in (None, found.name)
        for label, file in _listed(found)
    )


def _listed(source: Source) -> list[tuple[str, Readable]]:
    try:
        return list(source.files)
    except IntakeError as error:
        _log.warning("not counted as unread: %s", error)
        return []


def _unread(file: Readable, position: dict[str, Any] | None) -> int:
    try:
        stat = file.stat()
    except OSError:
        return 0  # gone, or not readable now: intake itself says which
    if position is None:
        return stat.st_size
    if (stat.st_size, stat.st_mtime_ns, stat.st_ino) == (position["size"], position["mtime_ns"], position["inode"]):
        # A last line without its end is waited for; of a compressed file it is not known how much is left.
        return max(1, stat.st_size - position["offset"]) if left(position) == UNREAD else 0
    seen: int = position.get("seen", position["offset"])
    same_file = stat.st_ino == position["inode"] and stat.st_size >= seen
    return stat.st_size - seen if same_file else stat.st_size
