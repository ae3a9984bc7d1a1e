"""The name of a source as a person types it: as the tables show it, or as much of it as tells it from all others."""

from __future__ import annotations

import os
from pathlib import Path

import sqlalchemy as sa

from flywheel.errors import IntakeError
from flywheel.store import segments
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
"""What stands before the end of a name that a table has no room for."""


def source_named(home: Home, registry: Registry, task: str, typed: str | None) -> str | None:
    """The source, or file of one, that is meant: its name, a path from the working folder, or the end of either.

    None stays None. Raises IntakeError, with the names there are, when it is none of them or more than one.
    """
    if typed is None:
        return None
    sources, files = _sources(registry, task), _files(home, registry, task)
    known = {*sources, *files}
    if typed in known:
        return typed
    here = os.path.normpath(Path(typed).absolute())
    if here in known:
        return here
    end = typed.removeprefix(ELLIPSIS).removeprefix("./")
    found = sorted(name for name in sources if end and name.endswith(end))
    found = found or sorted(name for name in files if end and name.endswith(end))
    if len(found) == 1:
        return found[0]
    told = "".join(f"\n  {name}" for name in (found or sorted(sources))) or " none: nothing was ever taken in"
    problem = "more than one source ends so" if found else f"{task} has no such source"
    raise IntakeError(f"--source {typed}: {problem}; known:{told}")


def last_read(registry: Registry, task: str, source: str) -> str | None:
    """When records of a source were last read, UTC, or None."""
    table = schema.intake_counts
    with registry.read() as tx:
        found = tx.scalar(sa.select(sa.func.max(table.c.at)).where(table.c.task == task, table.c.source == source))
    return None if found is None else str(found)


def _sources(registry: Registry, task: str) -> set[str]:
    with registry.read() as tx:
        return {
            row["source"]
            for table in (schema.sources, schema.intake_counts)
            for row in tx.rows(sa.select(table.c.source).where(table.c.task == task).distinct())
        }


def _files(home: Home, registry: Registry, task: str) -> set[str]:
    rows = segments.query(home, registry, "quarantine", task, "SELECT DISTINCT source FROM rows")
    return {str(row["source"]) for row in rows.to_pylist()}
