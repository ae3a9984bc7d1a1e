"""``flywheel status``: the whole deployment on one screen."""

from __future__ import annotations

from typing import Any

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, opened, print_json, print_table


def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show each task's champion, what each replica serves, pending labels and the last verdicts."""
    from flywheel.loops.overview import overview

    with opened(config) as o:
        state = overview(o.config, o.registry)
    if as_json:
        print_json(state)
        return
    print_table("Tasks", [_task_row(name, task) for name, task in state["tasks"].items()], empty="no tasks")
    for name, task in state["tasks"].items():
        rows = [_loop_row(loop) for loop in task["loops"]]
        print_table(f"{name}: last loops", rows, empty=f"{name}: no loop has run yet")
    for erasure in state["unfinished_erasures"]:
        typer.echo(f"{erasure} is unfinished, and no loop can start: run `flywheel erase` for the same user again")
    for name, task in state["tasks"].items():
        if task["champion"] and task["champion"]["tainted"]:
            typer.echo(f"{name}: the champion has learned from erased rows; `flywheel erase --list` names the way back")
    if not any(task["replicas"] for task in state["tasks"].values()):
        typer.echo("no gateway is running; start one with `flywheel serve` or `flywheel up`")


def _task_row(name: str, task: dict[str, Any]) -> dict[str, Any]:
    champion = task["champion"]
    return {
        "task": name,
        "champion": champion["name"] if champion else None,
        "version": champion["version"] if champion else None,
        "replicas": [_replica(replica, champion, task["engine"]) for replica in task["replicas"]],
        "pending labels": f"{task['pending_labels']} of {task['min_labels']}",
    }


def _replica(replica: dict[str, Any], champion: dict[str, Any] | None, engine: str | None) -> str:
    if engine is not None:
        return f"{replica['url']}\n({replica['state']}) passes on to {engine}"
    serves = (replica["observed"] or {}).get("release")
    agrees = champion is not None and serves == champion["release"]
    what = "serves the champion" if agrees else f"serves {serves[:12]}" if serves else "serves nothing yet"
    return f"{replica['url']}\n({replica['state']}) {what}"


def _loop_row(loop: dict[str, Any]) -> dict[str, Any]:
    return {
        "loop": loop["loop_id"],
        "state": loop["state"],
        "attempt": loop["attempt"],
        "labels": f"{loop['from_seq']}..{loop['to_seq']}",
        "verdict": loop["verdict"],
        "reasons": loop["reasons"],
    }
