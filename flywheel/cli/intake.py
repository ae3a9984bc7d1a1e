"""``flywheel intake``: read logs into the tables, and say what became of every record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, TaskOption, opened, print_json, print_table

app = typer.Typer(help="Logs into interactions and feedback, reconciled to the last record.", no_args_is_help=True)

LOST_TOO_MUCH = 0.95


@app.command("run")
def run(task: TaskOption, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Read what is new in the gateway's log and the task's own logs, then bring the labels up to date."""
    from flywheel.intake import run_intake
    from flywheel.labels import run_labels

    with opened(config, task) as o:
        report = run_intake(o.config, o.home, o.registry, task)
        labels = run_labels(o.config, o.home, o.registry, task)
    if as_json:
        print_json({"sources": [vars(source) for source in report.sources], "labels": vars(labels)})
        return
    _show([vars(source) for source in report.sources])
    typer.echo(f"feedback joined late: {report.joined}, still waiting for its interaction: {report.waiting}")
    typer.echo(f"new label versions: {labels.new_versions}, labels: {labels.total}, not mature yet: {labels.waiting}")


@app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(help="JSONL file or folder")],
    task: TaskOption,
    fmt: Annotated[str, typer.Option("--format", help="auto, or a format's name; a wrong one lists them")] = "auto",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a file. Exits 2 when less than 95 % of its records could be kept; what was kept stays."""
    from flywheel.intake import import_path

    with opened(config, task) as o:
        report = import_path(o.config, o.home, o.registry, task, path, fmt=fmt)
    row = vars(report)
    if as_json:
        print_json(row)
    else:
        _show([row])
    if report.quarantined > (1 - LOST_TOO_MUCH) * max(report.read, 1):
        typer.echo(f"{report.quarantined} of {report.read} records are in quarantine; is --format right?", err=True)
        raise typer.Exit(2)


def _show(rows: list[dict[str, Any]]) -> None:
    plain = [{**row, "reasons": [f"{why}: {n}" for why, n in sorted(row["reasons"].items())]} for row in rows]
    print_table("Reconciliation", plain, empty="no source has anything")
