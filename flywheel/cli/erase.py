"""``flywheel erase``: one person's data out of every store and dataset, and what has learned from it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, opened, print_json, print_table, when

if TYPE_CHECKING:
    from flywheel.erasure import TaskTaint

WORDS = {
    "interactions": "interactions, with all turns of their conversations",
    "interactions_of_others": "  of them turns of other users",
    "feedback": "feedback, by them or about these",
    "orphans": "feedback that waits for its target",
    "quarantine": "quarantined records that mention them",
    "labels": "label versions",
    "datasets": "datasets that get a successor",
    "dataset_rows": "  rows in these",
    "suites": "suites that get a successor",
    "suite_items": "  items in these",
    "probes": "probes of releases",
    "recordings": "  recordings of which none is left",
    "runs": "unfinished working folders",
    "loops": "open loops that end",
    "log_lines": "lines of the gateway's log",
}


def erase(
    user: Annotated[str | None, typer.Option(help="the person's id, as callers send it in `user`")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show what would go")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    listing: Annotated[bool, typer.Option("--list", help="show earlier erasures and what is still tainted")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase a person: their rows leave every table, dataset, suite and the log, and later imports of them are dropped.

    Interrupted, run it again. Names the checkpoints and releases that have learned from the rows, and the way back.
    """
    from flywheel.errors import ConfigError

    if listing:
        _list(config, as_json)
        return
    if user is None:
        raise ConfigError("say who: --user ID, as callers send it; or --list for earlier erasures")
    if not (dry_run or yes or sys.stdin.isatty()):
        raise ConfigError("nobody is there to confirm: add --yes to erase, or --dry-run to look")
    from flywheel.erasure import erase as erase_user
    from flywheel.erasure import plan_erasure

    with opened(config) as o:
        if dry_run or not yes:
            plan = plan_erasure(o.config, o.home, o.registry, user)
            if dry_run and as_json:
                print_json(vars(plan) | {"found": plan.found, "tainted": [taint.to_json() for taint in plan.tainted]})
                return
            if not as_json:
                _show_counts("Would be erased", plan.counts)
                _show_rest(plan.foreign, plan.tainted)
            if dry_run:
                return
            typer.confirm("Erase this for good, and drop this user from now on?", abort=True, err=True)
        done = erase_user(o.config, o.home, o.registry, user)
    if as_json:
        print_json(vars(done) | {"tainted": [taint.to_json() for taint in done.tainted]})
        return
    _show_counts("Erased" + (" (an interrupted erasure, finished now)" if done.resumed else ""), done.counts)
    _show_rest(done.foreign, done.tainted)
    typer.echo(f"{done.erasure_id}: done; from now on intake drops what this user sends, and counts it")


def _show_counts(title: str, counts: dict[str, int]) -> None:
    rows = [{"what": words, "count": counts[kind]} for kind, words in WORDS.items() if counts.get(kind)]
    print_table(title, rows, empty="nothing of this user was found")


def _show_rest(foreign: list[dict[str, Any]], tainted: Sequence[TaskTaint]) -> None:
    if foreign:
        print_table("Log files of your own that hold them: never rewritten, see to these yourself", foreign, empty="")
    for taint in tainted:
        _show_taint(vars(taint))


def _show_taint(taint: dict[str, Any]) -> None:
    """What has learned from erased rows in one task, and what to do."""
    task, releases = taint["task"], taint["releases"]
    typer.echo(
        f"{task}: {len(taint['checkpoints'])} checkpoint(s) have learned from erased rows"
        + (f"; releases that cannot be promoted any more: {', '.join(releases)}" if releases else "")
    )
    if taint["champion"]:
        typer.echo(f"{task}: the champion {taint['champion']} is among them. The way back, to train on what remains:")
        for command in taint["way_back"]:
            typer.echo(f"  {command}")


def _list(config: Any, as_json: bool) -> None:
    from flywheel.erasure import list_erasures

    with opened(config) as o, o.registry.read() as tx:
        erasures = list_erasures(tx, sorted(o.config.tasks))
    if as_json:
        print_json(erasures)
        return
    rows = [
        {
            "erasure": row["erasure_id"],
            "state": "unfinished" if row["state"] == "running" else row["state"],
            "at": when(row["at"]),
            "calls": row["counts"].get("interactions", 0),
            "examples": row["counts"].get("dataset_rows", 0),
        }
        for row in erasures
    ]
    print_table("Erasures", rows, empty="nobody was erased here")
    for row in erasures:
        if row["state"] == "running":
            typer.echo(f"{row['erasure_id']} is unfinished: run `flywheel erase` for the same user again")
        for taint in row["tainted"]:
            _show_taint(taint)
