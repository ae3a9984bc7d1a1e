"""``flywheel intake``: read logs into the tables, and say what became of every record."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flywheel.cli import quarantine
from flywheel.cli.counts import (
    counts_line,
    counts_of,
    ending,
    progress,
    room,
    run_name,
    short,
    show_counts,
    show_reasons,
    show_run,
    waiting,
)
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
from flywheel.cli.stopping import GO_ON, INTERRUPTED, Taken, stoppable

if TYPE_CHECKING:
    from flywheel.config import Config
    from flywheel.config_logs import ColumnMap
    from flywheel.intake import ReplayReport, SourceReport
    from flywheel.intake.preview import Preview
    from flywheel.store.home import Home
    from flywheel.store.registry import Registry

app = typer.Typer(help="Logs into interactions and feedback, reconciled to the last record.", no_args_is_help=True)
app.add_typer(quarantine.app, name="quarantine")

PARSED_AT_LEAST = 0.95


@app.command("run")
def run(task: TaskOption, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Read what is new in the gateway's log and the task's own logs, then bring the labels up to date."""
    from flywheel.intake import run_intake
    from flywheel.labels import run_labels
    from flywheel.labels.verify import run_verifiers

    with stoppable() as taken, opened(config, task) as o:
        report = run_intake(o.config, o.home, o.registry, task, run=run_name("manual"), progress=taken, waits=waiting)
        run_verifiers(o.config, o.home, o.registry, task, say=say)
        labels = run_labels(o.config, o.home, o.registry, task)
    show_run(report, labels, as_json)


@app.command("import")
def import_(
    path: Annotated[str, typer.Argument(metavar="PLACE", help="file, folder, glob or URL")],
    task: TaskOption,
    fmt: Annotated[str, typer.Option("--format", help="auto, or a format's name; a wrong one lists them")] = "auto",
    columns: Annotated[
        str | None, typer.Option(help="for a table of your own: prompt=question,completion=answer,thumb=vote ...")
    ] = None,
    show: Annotated[bool, typer.Option("--preview/--no-preview", help="show what the first records become")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="read all of it and store nothing")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="read it from its start, whatever was read before, and its quarantine")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="processes that share what is long; without it one for each core")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a file, folder, glob or URL, after showing its format and three of its records as they will be stored.

    Exits 2 when less than 95 % of its records could be parsed, or not all of it could be read; what was kept stays.
    Interrupted, run it again. After an import under a wrong format or columns, name the right ones and add --again.
    """
    from flywheel.config import parse_columns
    from flywheel.intake.preview import examine, preview
    from flywheel.intake.run import import_source
    from flywheel.intake.source_names import last_read

    then = "what is stored is a duplicate when the same command begins anew" if again else GO_ON
    with stoppable(then, stores=not dry_run) as taken, opened(config, task) as o:
        named = None if columns is None else parse_columns(columns)
        source = import_source(o.config, path, fmt, named)
        at = o.config, o.home, o.registry, task
        first = preview(*at, source, again=again or dry_run) if show else None
        if first is not None and not as_json:
            _show_preview(first)
        replayed: ReplayReport | None = None
        if dry_run:
            report = examine(*at, source)
        else:
            replayed, report = _import(at, path, fmt, named, again, workers, taken)
        before = None if report.read or dry_run else last_read(o.registry, task, source.name)
    row = dict(vars(report))
    if as_json:
        more = {} if first is None else {"preview": vars(first)}
        if replayed is not None:
            more["replayed"] = {"sources": [vars(one) for one in replayed.sources], "left": replayed.left}
        print_json(row | {"dry_run": dry_run} | more)
    elif dry_run:
        names = {"read": "read", "kept": "readable", "quarantined": "quarantined", "skipped": "skipped"}
        show_counts([row], "What would be read", names)
        typer.echo("nothing was stored; how many of the readable ones are duplicates shows when they are taken in")
    else:
        if replayed is not None:
            quarantine.show_replay(replayed)
        show_counts([row])
    if before is not None:
        say(f"nothing new since {when(before)} UTC; to read it again: --again")
    bad, parsed = _unparsed(report, replayed)
    if parsed < PARSED_AT_LEAST:
        _tell_unparsed(report, bad, task, dry_run, fmt != "auto" or columns is not None)
    for fault in sorted(set(report.faults)):
        say(f"{report.source}: not read to its end: {fault}")
    if parsed < PARSED_AT_LEAST or report.faults:
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
    with _until_stopped(), opened(config, task) as o:
        say(f"following the sources of {task}; Ctrl-C ends")
        while True:
            try:
                _round(o, task, as_json)
                trouble = ""
            except IntakeError as error:  # a file that cannot be read now may be there again in a minute
                if str(error) != trouble:
                    say(f"error: {error}")
                trouble = str(error)
            time.sleep(interval)


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
    from flywheel.intake.source_names import source_named

    with opened(config, task) as o:
        source = source_named(o.home, o.registry, task, source)
        rows, all_runs = past(o.registry, task, source=source, limit=limit), totals(o.registry, task)
    if as_json:
        print_json({"runs": rows, "all": vars(all_runs) | {"in_quarantine": all_runs.in_quarantine}})
        return
    width = max(len("2026-01-01 00:00"), room([counts_of(row) for row in rows]))
    shown = [
        {"run": f"{(when(row['ended']) or '')[:16]}\n{row['run'].split(' ')[0]}\n{ending(short(row['source']), width)}"}
        | counts_of(row)
        for row in rows
    ]
    print_table(f"{task}: intake runs", shown, empty="nothing was ever taken in", whole="run")
    if reasons:
        show_reasons({**row, "source": f"{when(row['ended'])} {short(row['source'])}"} for row in rows)
    typer.echo(
        "all runs: " + counts_line(all_runs.counts) + f"; replayed from quarantine {all_runs.replayed}, "
        f"so in quarantine now {all_runs.in_quarantine}"
    )


@app.command("backfill")
def backfill(
    task: TaskOption,
    first: Annotated[str, typer.Option("--from", metavar="DAY", help="first day, UTC: YYYY-MM-DD")],
    last: Annotated[str, typer.Option("--to", metavar="DAY", help="last day, UTC: YYYY-MM-DD")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read all sources again from their start for some days; what is there already is a duplicate.

    Then bring the labels up to date. Resume points stay as they are. Interrupted, run it again.
    """
    from flywheel.intake import run_backfill
    from flywheel.labels import run_labels
    from flywheel.labels.verify import run_verifiers

    days = _day("--from", first), _day("--to", last)
    then = "what is stored is a duplicate when the same command begins anew"
    with stoppable(then) as taken, opened(config, task) as o:
        with progress("reading again", taken) as told:
            report = run_backfill(o.config, o.home, o.registry, task, *days, run=run_name("backfill"), progress=told)
        run_verifiers(o.config, o.home, o.registry, task, say=say)
        labels = run_labels(o.config, o.home, o.registry, task)
    show_run(report, labels, as_json)


def _import(
    at: tuple[Config, Home, Registry, str],
    path: str,
    fmt: str,
    columns: ColumnMap | None,
    again: bool,
    workers: int | None,
    taken: Taken,
) -> tuple[ReplayReport | None, SourceReport]:
    from flywheel.intake import import_again, import_path
    from flywheel.store.processes import cores

    with progress("importing", taken) as told:
        read: dict[str, Any] = {
            "fmt": fmt,
            "columns": columns,
            "run": run_name("import"),
            "workers": workers or cores(),
        }
        read |= {"progress": told, "waits": waiting}
        if again:
            return import_again(*at, path, replay_run=run_name("replay"), **read)
        return None, import_path(*at, path, **read)


def _unparsed(report: SourceReport, replayed: ReplayReport | None) -> tuple[int, float]:
    """How many records ended in quarantine, and the share of all that could be parsed."""
    from flywheel.intake import SourceReport
    from flywheel.intake.backfill import IN_QUARANTINE

    stayed = report.reasons.get(IN_QUARANTINE, 0) if replayed is not None else 0
    whole = SourceReport(report.source)
    whole.add(report)
    whole.quarantined += stayed
    return whole.quarantined, whole.parsed_share()


def _tell_unparsed(report: SourceReport, bad: int, task: str, dry_run: bool, named: bool) -> None:
    from flywheel.intake.detect import UNKNOWN

    most = max(report.reasons, key=lambda why: report.reasons[why], default="")
    where = "would be" if dry_run else "are"
    if named or most == UNKNOWN:
        ask = "are --format and --columns right? With the right ones, import it --again" if not dry_run else ""
        ask = ask or "is --format right?"
    else:
        ask = f"flywheel intake quarantine show --task {task} shows them" if not dry_run else "see the reasons above"
    say(f"{bad} of {report.read} records {where} in quarantine; {ask}")


@contextmanager
def _until_stopped() -> Iterator[None]:
    """Being stopped is how following ends: by Ctrl-C it is no fault."""
    try:
        with stoppable("the next run goes on from here", quiet=True):
            yield
    except typer.Exit as stopped:
        say("stopped; the next run goes on from here")
        if stopped.exit_code != INTERRUPTED:
            raise


def _day(option: str, typed: str) -> date:
    from flywheel.errors import IntakeError

    try:
        return date.fromisoformat(typed)
    except ValueError:
        raise IntakeError(f"{option} {typed}: no such day; write it as YYYY-MM-DD") from None


def _round(o: Opened, task: str, as_json: bool) -> None:
    from flywheel.intake import run_intake, unread_bytes
    from flywheel.labels import labels_due, run_labels
    from flywheel.labels.verify import run_verifiers

    due = labels_due(o.registry, task, o.config.task(task).labels)
    if not due and not unread_bytes(o.config, o.home, o.registry, task):
        return
    report = run_intake(o.config, o.home, o.registry, task, run=run_name("tail"))
    run_verifiers(o.config, o.home, o.registry, task, say=say)
    labels = run_labels(o.config, o.home, o.registry, task)
    total = report.total
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
    if not found.looked_at:
        typer.echo("no records, or none that are new")
    elif not found.formats:
        typer.echo(f"none of the first {found.looked_at} records is in a format that is known")
    for why, count in sorted(found.unusable.items()):
        typer.echo(f"{count} of the first {found.looked_at} records: {why}")
    for number, record in enumerate(found.records, 1):
        typer.echo(f"record {number}: {record['record']}")
        for name, value in record.items():
            if name != "record" and value not in (None, "") and (name, value) != ("time_quality", "ok"):
                typer.echo(f"  {name.replace('_', ' '):<12} {printable(str(value))}")
