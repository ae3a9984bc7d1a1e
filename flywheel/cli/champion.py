"""``flywheel champion`` and ``flywheel rollback``: what is served, how it came to be, and the way back."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, TaskOption, opened, print_json, print_table, say, when

app = typer.Typer(help="The release that a task serves.", no_args_is_help=True)
_MOVE = ("version", "kind", "release", "previous", "decision", "loop_id", "swap_ms", "at", "actor")


@app.command()
def show(task: TaskOption, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the champion and the decision that made it."""
    import sqlalchemy as sa

    from flywheel.release.pointer import champion, history
    from flywheel.release.releases import get_release
    from flywheel.store.registry import schema

    with opened(config, task) as o, o.registry.read() as tx:
        current = champion(tx, task)
        if current is None:
            say(f"{task} has no champion yet; `flywheel serve` starts with the base model")
            raise typer.Exit(1)
        release = get_release(tx, current.release)
        move = history(tx, task)[-1]
        decision = tx.scalar(sa.select(schema.decisions.c.record).where(schema.decisions.c.digest == move["decision"]))
    if as_json:
        print_json(
            {"champion": vars(release) | {"name": release.name, "version": current.version}, "decision": decision}
        )
        return
    rows: list[dict[str, Any]] = [
        {"": "name", "value": release.name},
        {"": "release", "value": release.digest},
        {"": "checkpoint", "value": release.checkpoint or "none: the base model"},
        {"": "base", "value": release.base["name"]},
        {"": "pointer version", "value": current.version},
        {"": "since", "value": when(move["at"])},
        {"": "came by", "value": move["kind"] + (f" in {move['loop_id']}" if move["loop_id"] else "")},
        {"": "decision", "value": move["decision"]},
    ]
    print_table(task, rows, empty="")


@app.command("history")
def history_(task: TaskOption, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List every move of the champion pointer, oldest first."""
    from flywheel.release.pointer import history

    with opened(config, task) as o, o.registry.read() as tx:
        rows = [{name: row[name] for name in _MOVE} for row in history(tx, task)]
    if as_json:
        print_json(rows)
        return
    # What fits 80 columns; the line above says which release was before, and --json has all.
    short: list[dict[str, Any]] = [
        {
            "version": row["version"],
            "kind": row["kind"],
            "release": row["release"][:12],
            "at": when(row["at"]),
            "loop": row["loop_id"],
        }
        for row in rows
    ]
    print_table(f"{task}: champions", short, empty="no champion yet")


def rollback(
    task: TaskOption,
    to: Annotated[str | None, typer.Option(help="release digest or name; default: the one before")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve an earlier release of this task again, on every replica, without losing a request."""
    from flywheel.release.promotion import rollback as roll_back

    with opened(config, task) as o:
        report = roll_back(o.config, o.home, o.registry, task, to=to, actor=o.registry.actor)
    if as_json:
        print_json(vars(report))
    else:
        typer.echo(
            f"{task} serves {report.release[:12]} (was {report.previous[:12]}), pointer version {report.version}"
        )
