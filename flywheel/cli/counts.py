"""What the commands that take records in share: a name for the run, progress on the terminal, and the counts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flywheel.cli.shared import print_json, print_table, say

if TYPE_CHECKING:
    from flywheel.intake import IntakeReport, SourceReport
    from flywheel.labels import LabelsReport

STOPPED = 130
"""Exit code after Ctrl-C, as shells have it."""

_COUNTS = ("read", "kept", "late", "duplicate", "quarantined", "skipped")


def run_name(kind: str) -> str:
    """A name under which the counts of one command are stored; it begins with the kind."""
    return f"{kind} {datetime.now(UTC).isoformat(timespec='milliseconds')}"


@contextmanager
def progress(what: str) -> Iterator[Callable[[SourceReport], None] | None]:
    """A function that shows counts as they grow, or None when nobody watches; Ctrl-C ends the command with a message.

    Progress goes to standard error, so that standard output stays clean.
    """
    taken: dict[str, int] = {}
    try:
        if not sys.stderr.isatty():
            yield lambda report: taken.update({report.source: report.read})
            return
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what)

            def show(report: SourceReport) -> None:
                taken[report.source] = report.read
                counts = f"{report.read:,} read, {report.kept:,} kept, {report.quarantined:,} in quarantine"
                bar.update(task, description=f"{what}: {counts}")

            yield show
    except KeyboardInterrupt:
        count = sum(taken.values())
        say(f"stopped. What became of the {count} records read so far stays; the same command goes on from there")
        raise typer.Exit(STOPPED) from None


def counts_of(row: Mapping[str, Any]) -> dict[str, int]:
    """The counts in a row, in the order in which they are shown."""
    return {name: row[name] for name in _COUNTS}


def counts_line(row: Mapping[str, Any]) -> str:
    """The counts on one line."""
    return ", ".join(f"{name} {count:,}" for name, count in counts_of(row).items())


def reasons_of(row: Mapping[str, Any]) -> list[str]:
    """The reasons with their counts, by name."""
    return [f"{why}: {count}" for why, count in sorted(row["reasons"].items())]


def short(place: str) -> str:
    """A path as one would type it here; anything else as it is."""
    folder = f"{Path.cwd()}/"
    return place.removeprefix(folder)


def show_counts(rows: Sequence[Mapping[str, Any]], title: str = "Reconciliation") -> None:
    """A table of what became of the records of each source."""
    plain = [{**row, "source": short(row["source"]), "reasons": reasons_of(row)} for row in rows]
    print_table(title, plain, empty="no source has anything")


def show_run(report: IntakeReport, labels: LabelsReport, as_json: bool) -> None:
    """What a run over all sources came to."""
    if as_json:
        print_json({"sources": [vars(source) for source in report.sources], "labels": vars(labels)})
        return
    show_counts([vars(source) for source in report.sources])
    typer.echo(f"feedback joined late: {report.joined}, still waiting for its interaction: {report.waiting}")
    typer.echo(f"new label versions: {labels.new_versions}, labels: {labels.total}, not mature yet: {labels.waiting}")
