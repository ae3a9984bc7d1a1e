"""``flywheel review``: the audited interactions that wait for a person's label."""

from __future__ import annotations

from typing import Annotated

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, TaskOption, opened, print_json, print_table

app = typer.Typer(
    help="The audit sample: what judges the next candidate once a person has labelled it.", no_args_is_help=True
)


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
