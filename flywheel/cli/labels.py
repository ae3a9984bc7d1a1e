"""``flywheel labels``: what feedback came to, what verifiers say, and what a judge's word is worth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, TaskOption, opened, print_json, print_table, say
from flywheel.cli.stopping import stoppable

app = typer.Typer(help="Labels: what feedback, verifiers and judges come to.", no_args_is_help=True)

_SHOWN = ("seq", "target_id", "use", "y", "weight", "label_source", "reasons")


@app.command("list")
def list_(
    task: TaskOption,
    use: Annotated[str | None, typer.Option(help="only labels for this: sft, eval, none ...")] = None,
    limit: Annotated[int, typer.Option(min=1, help="at most so many, the newest first")] = 20,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the labels as they stand, with the reasons of each."""
    from flywheel.labels import current_labels

    with opened(config, task) as o:
        labels = current_labels(o.home, o.registry, task)
    chosen = [label for label in reversed(labels) if use in (None, label["use"])]
    if as_json:
        print_json(chosen[:limit])
        return
    names = {"target_id": "interaction", "label_source": "from"}
    rows = [{names.get(name, name): label[name] for name in _SHOWN} for label in chosen[:limit]]
    print_table(f"{task}: labels, {len(rows)} of {len(chosen)}", rows, empty="no labels", whole="interaction")


@app.command("verify")
def verify(task: TaskOption, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Let verifiers and the judge speak about what is new, then bring the labels up to date.

    Interrupted, run it again: what was said stays.
    """
    from flywheel.labels import run_labels
    from flywheel.labels.verify import run_verifiers

    try:
        with stoppable(quiet=True), opened(config, task) as o:
            report = run_verifiers(o.config, o.home, o.registry, task, say=say)
            labels = run_labels(o.config, o.home, o.registry, task)
    except typer.Exit:
        say("stopped; what was said so far stays, and the same command goes on")
        raise
    if as_json:
        print_json(report.to_json() | {"labels": vars(labels)})
        return
    rows = [own.row() for own in report.authors.values()]
    print_table(f"{task}: said in this run", rows, empty=f"{task} has neither verifiers nor a judge")
    if report.judges:
        print_table(f"{task}: judges", [_judge_row(row) for row in report.judges], empty="")
    if report.left:
        say("some answers are left to a later run")
    typer.echo(f"new label versions: {labels.new_versions}, labels: {labels.total}, not mature yet: {labels.waiting}")


@app.command("judges")
def judges(task: TaskOption, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show how often each judge agrees with people and verifiers, and how often it gave no verdict."""
    from flywheel.labels.verify import agreement

    with opened(config, task) as o:
        rows = agreement(o.home, o.registry, task, o.config.task(task).labels, datetime.now(UTC))
    if as_json:
        print_json(rows)
        return
    print_table(f"{task}: judges", [_judge_row(row) for row in rows], empty="no judge has said anything")


def _judge_row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "judge": row["judge"],
        "of": row["of"],
        "verdicts": row["judged"],
        "no verdict": f"flips {row['flips']}, unreadable {row['unreadable']}, refused {row['refused']}",
        "with people": _agreed(row, ""),
        "with verifiers": _agreed(row, "verifiers_"),
    }


def _agreed(row: dict[str, Any], prefix: str) -> str | None:
    compared, found = row[f"{prefix}compared"], row[f"{prefix}kappa"]
    if not compared:
        return None
    return f"{row[f'{prefix}agreed']} of {compared}" + ("" if found is None else f", kappa {found:.2f}")
