"""``flywheel review``: a person labels the audit sample, one key per item."""

from __future__ import annotations

from typing import Annotated

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, TaskOption, opened, print_json, print_table, say
from flywheel.cli.stopping import stoppable

app = typer.Typer(invoke_without_command=True)


@app.callback()
def review(
    context: typer.Context,
    task: Annotated[str | None, typer.Option("--task", "-t", help="task name in flywheel.yaml")] = None,
    author: Annotated[str | None, typer.Option(help="your name; default: the user of this machine")] = None,
    config: ConfigOption = None,
) -> None:
    """Label what waits for review: the audit sample, which judges the next candidate. Needs a running gateway.

    One key per item: y right, n wrong, e edit, s skip, u undo, q quit, or the key of the right answer.
    """
    if context.invoked_subcommand is not None:
        return
    if task is None:
        context.fail("Missing option '--task' / '-t'.")
    from rich.console import Console

    from flywheel.cli.keyboard import keys_of_stdin
    from flywheel.cli.review_loop import review_all
    from flywheel.cli.review_sitting import Sitting

    with opened(config, task) as o, stoppable(quiet=True):
        sitting = Sitting(o, task, author or o.registry.actor)
        try:
            review_all(sitting, keys_of_stdin(), Console(highlight=False))
        finally:
            if sitting.past:
                say(f"{sitting.labelled} labelled, {sitting.skipped} skipped")


@app.command("list")
def list_(
    task: TaskOption,
    limit: Annotated[int, typer.Option(help="at most so many, oldest first")] = 100,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List audited interactions without a strong label; answer with feedback of kind `label` and source `reviewer`."""
    from flywheel.labels import review_queue

    with opened(config, task) as o:
        items = review_queue(o.home, o.registry, task, limit, o.config.task(task).labels)
    if as_json:
        print_json(items)
        return
    rows = [
        {"interaction": item["interaction_id"], "message": item["messages"][-1]["content"], "answer": item["answer"]}
        for item in items
    ]
    print_table(f"{task}: waiting for review", rows, empty="nothing waits for review", whole="interaction")
