"""Log files that are not ours: they are never rewritten, so the operator is told which hold the person's rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.erasure.scope import Scope
from flywheel.intake.decode import decode
from flywheel.intake.detect import detect
from flywheel.intake.reader import read_lines
from flywheel.intake.records import BadRecord, Context, Dropped, InteractionRecord, Record, SkippedRecord
from flywheel.intake.sources import GATEWAY, path_source
from flywheel.labels.versions import SOURCE
from flywheel.store.registry import Registry, schema


def foreign_rows(config: Config, registry: Registry, scope: Scope, tasks: list[str]) -> list[dict[str, Any]]:
    """``{task, path, rows}`` of each configured or imported file with records of the person or about their calls."""
    found = []
    for task in tasks:
        context = Context(task, frozenset(config.tasks))
        for path in _files(config, registry, task):
            rows = sum(_theirs(scope, line.raw, context) for line in read_lines(path))
            if rows:
                found.append({"task": task, "path": str(path), "rows": rows})
    return found


def _files(config: Config, registry: Registry, task: str) -> list[Path]:
    table = schema.sources
    with registry.read() as tx:
        known = {row["source"] for row in tx.rows(sa.select(table.c.source).where(table.c.task == task))}
    named = known - {GATEWAY, SOURCE} | set(config.tasks[task].logs if task in config.tasks else ())
    return sorted({path for name in named for _, path in path_source(Path(name)).files})


def _theirs(scope: Scope, raw: bytes, context: Context) -> bool:
    try:
        record = decode(raw)[0]
        found = detect(record).records(record, context)
    except (BadRecord, SkippedRecord):
        return False
    return any(_takes(scope, one, context.task) for one in found if not isinstance(one, Dropped))


def _takes(scope: Scope, record: Record, task: str) -> bool:
    if isinstance(record, InteractionRecord):
        return scope.is_user(record.user) or scope.has(task, record.call_id, record.conversation_id)
    return scope.is_user(record.author) or scope.has(task, record.feedback_id, record.target)
