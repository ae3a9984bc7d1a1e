"""Log files that are not ours: they are never rewritten, so the operator is told which hold the person's rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.erasure.scope import Scope
from flywheel.errors import IntakeError
from flywheel.intake.containers import container_of, read_records
from flywheel.intake.decode import decode
from flywheel.intake.detect import format_of
from flywheel.intake.formats import load_formats
from flywheel.intake.places import Readable
from flywheel.intake.reader import FileFault, Line
from flywheel.intake.records import BadRecord, Context, Dropped, InteractionRecord, Record, SkippedRecord
from flywheel.intake.sources import GATEWAY, Source, configured, path_source
from flywheel.labels.verify.words import STAGE
from flywheel.labels.versions import SOURCE
from flywheel.store.registry import Registry, schema

UNREADABLE = "unknown: it cannot be read now"


def foreign_rows(config: Config, registry: Registry, scope: Scope, tasks: list[str]) -> list[dict[str, Any]]:
    """``{task, path, rows}`` of each configured or imported file with records of the person or about their calls.

    ``rows`` of a file or place that cannot be read now is `UNREADABLE`: an erasure waits for nobody's storage.
    """
    load_formats(config.formats)
    found = []
    for task in tasks:
        context = Context(task, frozenset(config.tasks))
        for label, rows in sorted(_counted(config, registry, scope, context).items()):
            if rows:
                found.append({"task": task, "path": label, "rows": rows})
    return found


def _counted(config: Config, registry: Registry, scope: Scope, context: Context) -> dict[str, int | str]:
    counts: dict[str, int | str] = {}
    for source in _sources(config, registry, context.task):
        try:
            for label, file in source.files:
                if label not in counts:
                    counts[label] = UNREADABLE
                    counts[label] = sum(_theirs(scope, line.raw, source, context) for line in _lines(file))
        except IntakeError:
            counts.setdefault(source.name, UNREADABLE)
        except FileNotFoundError:
            continue
    return counts


def _sources(config: Config, registry: Registry, task: str) -> list[Source]:
    """What is configured, then what else was ever imported, by name."""
    logs = config.tasks[task].logs if task in config.tasks else ()
    home = Path(config.home)
    ours = [configured(log, home) for log in logs]
    table = schema.sources
    with registry.read() as tx:
        known = {row["source"] for row in tx.rows(sa.select(table.c.source).where(table.c.task == task))}
    imported = known - {GATEWAY, SOURCE, STAGE} - {source.name for source in ours}
    return ours + [path_source(name, home=home) for name in sorted(imported)]


def _lines(file: Readable) -> Iterator[Line]:
    try:
        yield from read_records(file, container_of(file))
    except FileFault:
        return  # what could be read was counted


def _theirs(scope: Scope, raw: bytes, source: Source, context: Context) -> bool:
    try:
        record = decode(raw)[0]
        found = format_of(record, source.fmt, source.columns).records(record, context)
    except (BadRecord, SkippedRecord):
        return False
    return any(_takes(scope, one, context.task) for one in found if not isinstance(one, Dropped))


def _takes(scope: Scope, record: Record, task: str) -> bool:
    if isinstance(record, InteractionRecord):
        return scope.is_user(record.user) or scope.has(task, record.call_id, record.conversation_id)
    return scope.is_user(record.author) or scope.has(task, record.feedback_id, record.target)
