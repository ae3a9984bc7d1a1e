"""What starts intake: a run over every source of a task, and the import of a file."""

from __future__ import annotations

from pathlib import Path

from flywheel.config import Config
from flywheel.errors import IntakeError
from flywheel.intake.detect import check_recognisable
from flywheel.intake.formats import named
from flywheel.intake.known import waiting_count
from flywheel.intake.reading import Progress, Reading
from flywheel.intake.report import IntakeReport, SourceReport
from flywheel.intake.sources import path_source, task_sources
from flywheel.store.compaction import compact, sweep
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.store.registry import Registry


def run_intake(config: Config, home: Home, registry: Registry, task: str, *, run: str = "manual") -> IntakeReport:
    """Take in whatever is new in the gateway's log and the task's configured logs.

    Safe to kill at any instant and to run again: a chunk's rows, its source's position and its counts become visible
    together. Does almost nothing when no file has moved.

    Args:
        run: a name for this run, stored with its counts.

    Raises:
        IntakeError: a file of a source cannot be read. Bad records never raise; they go to quarantine.
    """
    with locked(home.locks / f"intake-{task}.lock"):
        reader = Reading(config, home, registry, task, run)
        reports = [reader.read(source) for source in task_sources(config, home, task)]
        if any(report.read for report in reports):
            _tidy(home, registry, task)
        return IntakeReport(reports, reader.writer.joined, waiting_count(registry, task))


def import_path(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    path: Path,
    *,
    fmt: str = "auto",
    run: str = "import",
    progress: Progress | None = None,
) -> SourceReport:
    """Take in a file, or every ``*.jsonl`` and ``*.ndjson`` of a folder; what was imported before is passed over.

    Args:
        fmt: a format's name, or ``auto`` to look at each record.
        progress: called with the counts so far after every chunk.

    Raises:
        IntakeError: there is no such file, the format's name is unknown, or no line looks like a known format.
    """
    if fmt != "auto":
        named(fmt)
    source = path_source(path.absolute(), fmt=fmt, tail="finished")
    if not source.files:
        raise IntakeError(f"{path}: no such file, or a folder without *.jsonl or *.ndjson files")
    with locked(home.locks / f"intake-{task}.lock"):
        reader = Reading(config, home, registry, task, run, progress)
        if fmt == "auto" and not reader.position(source)[0]:
            for _, file in source.files:
                check_recognisable(file)
        report = reader.read(source)
        if report.read:
            _tidy(home, registry, task)
        return report


def _tidy(home: Home, registry: Registry, task: str) -> None:
    for table in ("interactions", "feedback", "quarantine"):
        if compact(home, registry, table, task):
            sweep(home, registry, table, task)
    sweep(home, registry, "orphans", task)
