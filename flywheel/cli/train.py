"""``flywheel train``: a managed run on the user's own files, no loop needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, TaskOption, opened, print_json, print_table, say


def train(
    task: TaskOption,
    data: Annotated[Path, typer.Option(help="JSONL of {messages}, {prompt, completion} or {text, label}")],
    evaluate: Annotated[
        Path | None, typer.Option("--eval", help="the same, held out: gives accuracy and macro F1")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train on your files: progress, loss curve, accuracy and F1, and a release at the end. Run again to resume."""
    from flywheel.loops.managed import train_files

    with opened(config, task) as o:
        result = train_files(o.config, o.home, o.registry, task, data, evaluate, say=say)
    if as_json:
        print_json(result)
        return
    print_table("Run", [{"": name, "value": value} for name, value in result["run"].items()], empty="")
    print_table("Scores", result["scores"], empty="no --eval file, so no scores")
    typer.echo(
        f"release {result['release']}: propose it: `flywheel gate --task {task} --candidate {result['release'][:12]}`"
    )
