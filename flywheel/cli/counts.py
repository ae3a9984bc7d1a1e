"""What the commands that take records in share: a name for the run, progress on the terminal, and the counts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flywheel.cli.shared import print_json, print_table, printable, say
from flywheel.cli.stopping import Taken

if TYPE_CHECKING:
    from flywheel.intake import IntakeReport, SourceReport
    from flywheel.labels import LabelsReport

_COUNTS = ("read", "kept", "duplicate", "quarantined", "skipped", "late")

_NARROWEST = 12


def run_name(kind: str) -> str:
    """A name under which the counts of one command are stored; it begins with the kind."""
    return f"{kind} {datetime.now(UTC).isoformat(timespec='milliseconds')}"


@contextmanager
def progress(what: str, taken: Taken) -> Iterator[Callable[[SourceReport], None]]:
    """A function that notes counts as they grow, and shows them on standard error when a person watches."""
    if not sys.stderr.isatty():
        yield lambda report: taken(report, what)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what)

        def show(report: SourceReport) -> None:
            taken(report, what)
            counts = f"{report.read:,} read, {report.kept:,} kept, {report.quarantined:,} in quarantine"
            bar.update(task, description=f"{what}: {counts}")

        yield show


def waiting() -> None:
    """Say that another process has the intake of this task."""
    say("another process takes records of this task in; waiting for it")


def counts_of(row: Mapping[str, Any]) -> dict[str, int]:
    """The counts in a row, in the order in which they are shown."""
    return {name: row[name] for name in _COUNTS}


def counts_line(row: Mapping[str, Any]) -> str:
    """The counts on one line."""
    return ", ".join(f"{name} {count:,}" for name, count in counts_of(row).items())


def show_reasons(rows: Iterable[Mapping[str, Any]]) -> None:
    """Why records ended as they did, a line each: where, why, and how many."""
    for row in rows:
        for why, count in sorted(row["reasons"].items(), key=lambda item: (-item[1], item[0])):
            typer.echo(f"  {printable(short(row['source']))}: {why}: {count:,}")


def short(place: str) -> str:
    """A path as one would type it here; anything else as it is."""
    folder = f"{Path.cwd()}/"
    return place.removeprefix(folder)


def show_counts(
    rows: Sequence[Mapping[str, Any]], title: str = "Reconciliation", names: Mapping[str, str] | None = None
) -> None:
    """A table of what became of the records of each source, and below it why.

    Args:
        names: the counts to show and what they are called; None for all of them under their own names.
    """
    names = names or {name: name for name in _COUNTS}
    numbers = [{shown: row[name] for name, shown in names.items()} for row in rows]
    width = room(numbers)
    plain = [{"source": ending(short(row["source"]), width), **own} for row, own in zip(rows, numbers, strict=True)]
    print_table(title, plain, empty="no source has anything", whole="source")
    show_reasons(rows)


def room(numbers: Sequence[Mapping[str, int]]) -> int:
    """How wide a column before columns of these numbers may be, so that the terminal breaks none of them."""
    from rich.console import Console

    names = numbers[0] if numbers else {}
    taken = sum(3 + max(len(name), *(len(str(row[name])) for row in numbers)) for name in names)
    return max(_NARROWEST, Console().width - taken - 4)


def ending(name: str, width: int) -> str:
    """A name in so many columns: of a long one the end, which tells it from others; `--source` takes it as it is."""
    from flywheel.intake.source_names import ELLIPSIS

    return name if len(name) <= width else ELLIPSIS + name[len(name) - width + 1 :]


def show_run(report: IntakeReport, labels: LabelsReport, as_json: bool) -> None:
    """What a run over all sources came to."""
    if as_json:
        print_json({"sources": [vars(source) for source in report.sources], "labels": vars(labels)})
        return
    show_counts([vars(source) for source in report.sources])
    typer.echo(f"feedback joined late: {report.joined}, still waiting for its interaction: {report.waiting}")
    typer.echo(f"new label versions: {labels.new_versions}, labels: {labels.total}, not mature yet: {labels.waiting}")
