"""What starts intake: a run over every source of a task, and the import of a file."""

from __future__ import annotations

from pathlib import Path

from flywheel.config import ColumnMap, Config
from flywheel.config_values import is_url
from flywheel.errors import IntakeError
from flywheel.intake.detect import check_recognisable
from flywheel.intake.formats import load_formats, named
from flywheel.intake.known import waiting_count
from flywheel.intake.places import SUFFIXES
from flywheel.intake.reading import Progress, Reading
from flywheel.intake.report import IntakeReport, SourceReport
from flywheel.intake.sources import Source, path_source, task_sources
from flywheel.store.compaction import compact, sweep
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.store.registry import Registry


def run_intake(
    config: Config, home: Home, registry: Registry, task: str, *, run: str = "manual", source: str | None = None
) -> IntakeReport:
    """Take in whatever is new in the gateway's log and the task's configured logs.

    Safe to kill at any instant and to run again: a chunk's rows, its source's position and its counts become visible
    together. Does almost nothing when no file has moved.

    Args:
        run: a name for this run, stored with its counts.
        source: the name of the one source to read; None for all.

    Raises:
        IntakeError: a file of a source cannot be read, or there is no source of that name. Bad records never raise;
            they go to quarantine.
    """
    with locked(home.locks / f"intake-{task}.lock"):
        sources = task_sources(config, home, task)
        if source is not None and not (sources := [found for found in sources if found.name == source]):
            raise IntakeError(f"{task} has no source {source}; it was taken out of flywheel.yaml, or is misspelt")
        reader = Reading(config, home, registry, task, run)
        reports = [reader.read(one) for one in sources]
        if any(report.read for report in reports):
            tidy(home, registry, task)
        return IntakeReport(reports, reader.writer.joined, waiting_count(registry, task))


def import_path(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    path: str | Path,
    *,
    fmt: str = "auto",
    columns: ColumnMap | None = None,
    run: str = "import",
    progress: Progress | None = None,
    workers: int = 1,
) -> SourceReport:
    """Take in a file, a folder, a glob or what is behind a URL; what was imported before is passed over.

    Args:
        fmt: a format's name, or ``auto`` to look at each record.
        columns: which column holds what, for a table of one's own.
        progress: called with the counts so far after every chunk.
        workers: processes that share the reading of what is long.

    Raises:
        IntakeError: there is no such file, the format's name is unknown, or no line looks like a known format.
    """
    source = import_source(config, path, fmt, columns)
    with locked(home.locks / f"intake-{task}.lock"):
        reader = Reading(config, home, registry, task, run, progress, workers)
        if source.fmt == "auto" and not reader.position(source)[0]:
            check_recognisable(file for _, file in source.files)
        report = reader.read(source)
        if report.read:
            tidy(home, registry, task)
        return report


def import_source(config: Config, path: str | Path, fmt: str = "auto", columns: ColumnMap | None = None) -> Source:
    """The source that an import of a place reads. Raises IntakeError as `import_path` does."""
    load_formats(config.formats)
    if fmt not in ("auto", "columns") or (fmt == "columns" and columns is None):
        named(fmt)
    place = str(path) if is_url(str(path)) else str(Path(path).absolute())
    source = path_source(place, fmt=fmt, tail="finished", columns=columns)
    if not source.files:
        raise IntakeError(f"{source.name}: no such file, or a folder without logs ({', '.join(SUFFIXES)})")
    return source


def tidy(home: Home, registry: Registry, task: str) -> None:
    """Merge small segments of what intake writes. The caller holds the intake lock."""
    for table in ("interactions", "feedback", "quarantine"):
        if compact(home, registry, table, task):
            sweep(home, registry, table, task)
    sweep(home, registry, "orphans", task)
