"""``flywheel intake``: read logs into the tables, and say what became of every record."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel.cli import quarantine
from flywheel.cli.counts import counts_line, counts_of, progress, reasons_of, run_name, short, show_counts, show_run
from flywheel.cli.shared import (
    ConfigOption,
    JsonOption,
    Opened,
    TaskOption,
    opened,
    print_json,
    print_table,
    printable,
    say,
    when,
)

if TYPE_CHECKING:
    from flywheel.intake.preview import Preview

app = typer.Typer(help="Logs into interactions and feedback, reconciled to the last record.", no_args_is_help=True)
app.add_typer(quarantine.app, name="quarantine")

PARSED_AT_LEAST = 0.95


@app.command("run")
def run(task: TaskOption, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Read what is new in the gateway's log and the task's own logs, then bring the labels up to date."""
    from flywheel.intake import run_intake
    from flywheel.labels import run_labels

    with opened(config, task) as o:
        report = run_intake(o.config, o.home, o.registry, task, run=run_name("manual"))
        labels = run_labels(o.config, o.home, o.registry, task)
    show_run(report, labels, as_json)


@app.command("import")
def import_(
    path: Annotated[str, typer.Argument(help="file, folder, glob or URL")],
    task: TaskOption,
    fmt: Annotated[str, typer.Option("--format", help="auto, or a format's name; a wrong one lists them")] = "auto",
    columns: Annotated[
        str | None, typer.Option(help="for a table of your own: prompt=question,completion=answer,thumb=vote ...")
    ] = None,
    show: Annotated[bool, typer.Option("--preview/--no-preview", help="show what the first records become")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="read all of it and store nothing")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="processes that share what is long; without it one for each core")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a file, after showing its format and three of its records as they will be stored.

    Exits 2 when less than 95 % of its records could be parsed; what was kept stays. Interrupted, run it again.
    """
    from flywheel.config import parse_columns
    from flywheel.intake import import_path
    from flywheel.intake.preview import examine, preview
    from flywheel.intake.run import import_source
    from flywheel.store.processes import cores

    with opened(config, task) as o:
        named = None if columns is None else parse_columns(columns)
        source = import_source(o.config, path, fmt, named)
        first = preview(o.config, o.home, o.registry, task, source) if show else None
        if first is not None and not as_json:
            _show_preview(first)
        if dry_run:
            report = examine(o.config, o.home, o.registry, task, source)
        else:
            with progress("importing") as told:
                report = import_path(
                    o.config,
                    o.home,
                    o.registry,
                    task,
                    path,
                    fmt=fmt,
                    columns=named,
                    run=run_name("import"),
                    progress=told,
                    workers=workers or cores(),
                )
    row = dict(vars(report))
    if as_json:
        print_json(row | {"dry_run": dry_run} | ({} if first is None else {"preview": vars(first)}))
    elif dry_run:
        names = {"source": "source", "read": "read", "kept": "readable", "quarantined": "quarantined"}
        names |= {"skipped": "skipped", "reasons": "reasons"}
        show_counts([{new: row[old] for old, new in names.items()}], "What would be read")
        typer.echo("nothing was stored; how many of the readable ones are duplicates shows when they are taken in")
    else:
        show_counts([row])
    if report.parsed_share() < PARSED_AT_LEAST:
        where = "would be" if dry_run else "are"
        typer.echo(f"{report.quarantined} of {report.read} records {where} in quarantine; is --format right?", err=True)
        raise typer.Exit(2)


@app.command("tail")
def tail(
    task: TaskOption,
    interval: Annotated[float, typer.Option(min=0.1, help="seconds between two looks")] = 2.0,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow the sources: take in what is new and bring the labels up to date, a line each time, until Ctrl-C.

    Dagster's sensors may do the same meanwhile: they and this take turns.
    """
    from flywheel.errors import IntakeError

    trouble = ""
    with opened(config, task) as o:
        say(f"following the sources of {task}; Ctrl-C ends")
        try:
            while True:
                try:
                    _round(o, task, as_json)
                    trouble = ""
                except IntakeError as error:  # a file that cannot be read now may be there again in a minute
                    if str(error) != trouble:
                        say(f"error: {error}")
                    trouble = str(error)
                time.sleep(interval)
        except KeyboardInterrupt:
            say("stopped; the next run goes on from here")


@app.command("history")
def history(
    task: TaskOption,
    source: Annotated[str | None, typer.Option(help="only this source")] = None,
    limit: Annotated[int, typer.Option(min=1, help="how many runs of a source, the newest first")] = 20,
    reasons: Annotated[bool, typer.Option("--reasons", help="also why records were quarantined or skipped")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what each intake run made of each source: every record read is kept, duplicate, quarantined or skipped."""
    from flywheel.intake.history import history as past
    from flywheel.intake.history import totals

    with opened(config, task) as o:
        rows, all_runs = past(o.registry, task, source=source, limit=limit), totals(o.registry, task)
    if as_json:
        print_json({"runs": rows, "all": vars(all_runs) | {"in_quarantine": all_runs.in_quarantine}})
        return
    shown = [
        {"run": f"{when(row['ended'])} {row['run'].split(' ')[0][:12]}\n{short(row['source'])}"}
        | counts_of(row)
        | ({"reasons": reasons_of(row)} if reasons else {})
        for row in rows
    ]
    print_table(f"{task}: intake runs", shown, empty="nothing was ever taken in")
    typer.echo(
        "all runs: " + counts_line(all_runs.counts) + f"; replayed from quarantine {all_runs.replayed}, "
        f"so in quarantine now {all_runs.in_quarantine}"
    )


@app.command("backfill")
def backfill(
    task: TaskOption,
    first: Annotated[datetime, typer.Option("--from", formats=["%Y-%m-%d"], help="first day, UTC")],
    last: Annotated[datetime, typer.Option("--to", formats=["%Y-%m-%d"], help="last day, UTC")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read all sources again from their start for some days; what is there already is a duplicate.

    Then bring the labels up to date. Resume points stay as they are. Interrupted, run it again.
    """
    from flywheel.intake import run_backfill
    from flywheel.labels import run_labels

    days = first.date(), last.date()
    with opened(config, task) as o:
        with progress("reading again") as told:
            report = run_backfill(o.config, o.home, o.registry, task, *days, run=run_name("backfill"), progress=told)
        labels = run_labels(o.config, o.home, o.registry, task)
    show_run(report, labels, as_json)


def _round(o: Opened, task: str, as_json: bool) -> None:
    from flywheel.intake import SourceReport, run_intake, unread_bytes
    from flywheel.labels import labels_due, run_labels

    due = labels_due(o.registry, task, o.config.task(task).labels)
    if not due and not unread_bytes(o.config, o.home, o.registry, task):
        return
    report = run_intake(o.config, o.home, o.registry, task, run=run_name("tail"))
    labels = run_labels(o.config, o.home, o.registry, task)
    total = SourceReport(task)
    for source in report.sources:
        total.add(source)
    if not total.read and not labels.new_versions:
        return
    now = datetime.now(UTC)
    if as_json:
        rest = {"joined": report.joined, "waiting": report.waiting, "new_label_versions": labels.new_versions}
        line = json.dumps({"at": now.isoformat(timespec="seconds")} | total.counts() | rest)
    else:
        line = f"{now:%H:%M:%S}  {counts_line(total.counts())}; new label versions {labels.new_versions}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _show_preview(found: Preview) -> None:
    for told in found.formats:
        typer.echo(f"format {told['format']}: {told['records']} of the first {found.looked_at} records, {told['why']}")
    if found.looked_at and not found.formats:
        typer.echo(f"none of the first {found.looked_at} records is in a format that is known")
    for why, count in sorted(found.unusable.items()):
        typer.echo(f"{count} of the first {found.looked_at} records: {why}")
    for number, record in enumerate(found.records, 1):
        typer.echo(f"record {number}: {record['record']}")
        for name, value in record.items():
            if name != "record" and value not in (None, "") and (name, value) != ("time_quality", "ok"):
                typer.echo(f"  {name.replace('_', ' '):<12} {printable(str(value))}")
