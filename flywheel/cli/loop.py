"""``flywheel loop``: turn the wheel by hand, and look at turns."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, TaskOption, opened, print_json, print_table, say, when

app = typer.Typer(help="Turns of the wheel.", no_args_is_help=True)


@app.command()
def run(task: TaskOption, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Run one loop now over what has gathered: intake, labels, dataset, training, evaluation, gate, promotion.

    An interrupted loop is taken up where it stopped.
    """
    from flywheel.loops.run import run_loop

    with opened(config, task) as o:
        view = run_loop(o.config, o.home, o.registry, task, run_id=f"cli-{uuid.uuid4().hex[:12]}", say=say)
    if as_json:
        print_json(view)
        return
    typer.echo(f"{view['loop_id']}: {view['verdict']}")
    for reason in view["reasons"]:
        typer.echo(f"  {reason}")


@app.command("list")
def list_(task: TaskOption, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List a task's loops, newest first."""
    from flywheel.loops.overview import overview

    with opened(config, task) as o:
        loops = overview(o.config, o.registry, last_loops=1000)["tasks"][task]["loops"]
    if as_json:
        print_json(loops)
        return
    rows = [{name: loop[name] for name in ("loop_id", "state", "attempt", "verdict", "reasons")} for loop in loops]
    print_table(f"{task}: loops", rows, empty="no loop has run yet")


@app.command()
def show(
    loop_id: Annotated[str, typer.Argument(help="such as support_router/7")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one loop: its window, rows, scores, verdict and reasons."""
    from flywheel.errors import ConfigError
    from flywheel.loops.overview import find_loop, loop_view

    with opened(config) as o, o.registry.read() as tx:
        row = find_loop(tx, loop_id)
        if row is None:
            raise ConfigError(f"{loop_id}: no such loop; `flywheel loop list --task TASK` shows them")
        view = loop_view(tx, row)
    if as_json:
        print_json(view)
        return
    view |= {name: when(view[name]) for name in ("started_at", "finished_at")}
    print_table(loop_id, [{"": name, "value": value} for name, value in view.items()], empty="")
