"""What starts intake: a run over every source of a task, and the import of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from flywheel.config import Config
from flywheel.config_logs import ColumnMap
from flywheel.config_values import is_url, place_without_password
from flywheel.errors import HomeBusy, IntakeError
from flywheel.intake.detect import check_recognisable
from flywheel.intake.formats import load_formats, named
from flywheel.intake.known import waiting_count
from flywheel.intake.mapping import Select
from flywheel.intake.places import SUFFIXES, shown
from flywheel.intake.reading import Progress, Reading
from flywheel.intake.report import IntakeReport, SourceReport
from flywheel.intake.sources import Source, path_source, task_sources
from flywheel.store.compaction import compact, sweep
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.store.registry import Registry


def run_intake(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    *,
    run: str = "manual",
    source: str | None = None,
    progress: Progress | None = None,
    waits: Callable[[], None] | None = None,
) -> IntakeReport:
    """Take in whatever is new in the gateway's log and the task's configured logs.

    Safe to kill at any instant and to run again: a chunk's rows, its source's position and its counts become visible
    together. Does almost nothing when no file has moved.

    Args:
        run: a name for this run, stored with its counts.
        source: the name of the one source to read; None for all.
        progress: called with a source's counts so far after every chunk.
        waits: called when another process takes records in, which this one then waits for.

    Raises:
        IntakeError: a file of a source cannot be read, or there is no source of that name. Bad records never raise;
            they go to quarantine.
    """
    with turn(home, task, waits):
        sources = task_sources(config, home, task)
        if source is not None and not (sources := [found for found in sources if found.name == source]):
            raise IntakeError(f"{task} has no source {source}; it was taken out of flywheel.yaml, or is misspelt")
        reader = Reading(config, home, registry, task, run, progress)
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
    anew: bool = False,
    again: Select | None = None,
    waits: Callable[[], None] | None = None,
) -> SourceReport:
    """Take in a file, a folder, a glob or what is behind a URL; what was imported before is passed over.

    Args:
        fmt: a format's name, or ``auto`` to look at each record.
        columns: which column holds what, for a table of one's own.
        progress: called with the counts so far after every chunk.
        workers: processes that share the reading of what is long.
        anew: read all of it from the start, whatever was read before; see `flywheel.intake.anew`.
        again: with ``anew``: what this makes of each record.
        waits: called when another process takes records in, which this one then waits for.

    Raises:
        IntakeError: there is no such file, the format's name is unknown, or no line looks like a known format.
    """
    source = import_source(config, path, fmt, columns)
    with turn(home, task, waits):
        reader = Reading(config, home, registry, task, run, progress, workers)
        if source.fmt == "auto" and (anew or not reader.position(source)[0]):
            check_recognisable(file for _, file in source.files)
        report = reader.read(source, again, anew=anew)
        if report.read:
            tidy(home, registry, task)
        return report


def import_source(config: Config, path: str | Path, fmt: str = "auto", columns: ColumnMap | None = None) -> Source:
    """The source that an import of a place reads. Raises IntakeError as `import_path` does."""
    load_formats(config.formats)
    check_format(fmt, columns)
    try:
        place = place_without_password(str(path) if is_url(str(path)) else str(Path(path).absolute()))
    except ValueError as error:
        raise IntakeError(f"{shown(str(path))}: {error}") from None
    source = path_source(place, fmt=fmt, tail="finished", columns=columns, home=Path(config.home))
    if not is_url(place) and Path(place).exists() and not (Path(place).is_file() or Path(place).is_dir()):
        raise IntakeError(f"{source.name}: no records: it is neither a file nor a folder")
    if not source.files:
        raise IntakeError(f"{source.name}: no such file, or a folder without logs ({', '.join(SUFFIXES)})")
    return source


def check_format(fmt: str, columns: ColumnMap | None) -> None:
    """Raise IntakeError when there is no format of that name."""
    if fmt not in ("auto", "columns") or (fmt == "columns" and columns is None):
        named(fmt)


@contextmanager
def turn(home: Home, task: str, waits: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the intake lock of a task; ``waits`` is called before waiting for another process that holds it."""
    lock = home.locks / f"intake-{task}.lock"
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, wait=waits is None))
        except HomeBusy:
            assert waits is not None
            waits()
            stack.enter_context(locked(lock))
        yield


def tidy(home: Home, registry: Registry, task: str) -> None:
    """Merge small segments of what intake writes. The caller holds the intake lock."""
    for table in ("interactions", "feedback", "quarantine"):
        if compact(home, registry, table, task):
            sweep(home, registry, table, task)
    sweep(home, registry, "orphans", task)
