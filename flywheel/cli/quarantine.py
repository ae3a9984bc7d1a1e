"""``flywheel intake quarantine``: the records that could not be used, why, and another try."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flywheel.cli.counts import progress, run_name, short, show_counts, waiting
from flywheel.cli.shared import ConfigOption, JsonOption, TaskOption, opened, print_json, print_table, printable, when
from flywheel.cli.stopping import stoppable

if TYPE_CHECKING:
    from flywheel.intake import ReplayReport

app = typer.Typer(help="Records that could not be used: what, why, and another try.", no_args_is_help=True)

SourceOption = Annotated[str | None, typer.Option(help="only of this source or file, as the tables show it")]
ReasonOption = Annotated[str | None, typer.Option(help="only those that are there for this reason")]


@app.command("list")
def list_(
    task: TaskOption,
    source: SourceOption = None,
    reason: ReasonOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how many records are in quarantine, per source and reason."""
    from flywheel.intake.quarantine import quarantined
    from flywheel.intake.source_names import source_named

    with opened(config, task) as o:
        source = source_named(o.home, o.registry, task, source)
        rows = quarantined(o.home, o.registry, task, source=source, reason=reason)
    if as_json:
        print_json(rows)
        return
    shown = [
        row | {"source": short(row["source"])} | {name: when(row[name].isoformat()) for name in ("first", "last")}
        for row in rows
    ]
    print_table(f"{task}: quarantine", shown, empty="quarantine is empty")


@app.command("show")
def show(
    task: TaskOption,
    source: SourceOption = None,
    reason: ReasonOption = None,
    limit: Annotated[int, typer.Option(min=1, help="so many at most")] = 20,
    raw: Annotated[bool, typer.Option("--raw", help="also what is stored of each record: up to 4096 bytes")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show single records in quarantine: their file, byte offset, line and reason."""
    from flywheel.intake.quarantine import entries, line_numbers, places
    from flywheel.intake.source_names import source_named

    with opened(config, task) as o:
        source = source_named(o.home, o.registry, task, source)
        found = places(o.home, o.registry, task, source=source, reason=reason)
        rows = entries(o.home, o.registry, task, found[:limit], reason=reason)
        lines = line_numbers(o.home, found[:limit])
    shown: list[dict[str, Any]] = [
        {
            "file": row["source"],
            "offset": row["source_offset"],
            "line": lines.get((row["source"], row["source_offset"])),
            "reason": row["reason"],
            "since": when(row["ts"].isoformat()),
        }
        | ({"raw": row["raw"]} if raw else {})
        for row in rows
    ]
    if as_json:
        print_json(shown)
        return
    if not raw:
        table = [{**row, "file": short(row["file"])} for row in shown]
        print_table(f"{task}: quarantine", table, empty="no such record is in quarantine")
    for row in shown if raw else ():
        typer.echo(f"{row['file']} offset {row['offset']} line {row['line'] or '-'}: {row['reason']}")
        typer.echo(printable(row["raw"]) + "\n")
    if len(found) > limit:
        typer.echo(f"{len(found) - limit} more; --limit shows them")


@app.command("replay")
def replay_(
    task: TaskOption,
    source: SourceOption = None,
    reason: ReasonOption = None,
    fmt: Annotated[str | None, typer.Option("--format", help="a format's name, in place of their source's")] = None,
    columns: Annotated[
        str | None, typer.Option(help="for a table of your own: prompt=question,completion=answer ...")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read quarantined records again from their files, and take in those that can be read now.

    What fails again stays in quarantine, and so does what lies no longer where it was read. Interrupted, run it again.
    """
    from flywheel.config import parse_columns
    from flywheel.intake import replay
    from flywheel.intake.source_names import source_named

    named = None if columns is None else parse_columns(columns)
    with stoppable() as taken, opened(config, task) as o, progress("replaying", taken) as told:
        source = source_named(o.home, o.registry, task, source)
        report = replay(
            o.config,
            o.home,
            o.registry,
            task,
            source=source,
            reason=reason,
            fmt=fmt,
            columns=named,
            run=run_name("replay"),
            progress=told,
            waits=waiting,
        )
    if as_json:
        print_json({"sources": [vars(source) for source in report.sources], "left": report.left})
        return
    show_replay(report)


def show_replay(report: ReplayReport) -> None:
    """What became of quarantined records, and what could not be read again."""
    if rows := [vars(one) for one in report.sources if one.read]:
        show_counts(rows, "Replayed from quarantine")
    left = [{"file": short(row["source"]), "offset": row["source_offset"], "why": row["why"]} for row in report.left]
    if left:
        print_table("Left in quarantine", left, empty="")
