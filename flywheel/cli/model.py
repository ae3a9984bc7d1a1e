"""``flywheel model``: get base models into the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flywheel.cli.shared import JsonOption, print_json, say

app = typer.Typer(
    help="Base models: pull one into the cache, or make the tiny one that tests use.", no_args_is_help=True
)


@app.command()
def pull(
    name: Annotated[str, typer.Argument(help="smollm2-135m, a hub id such as Qwen/Qwen3-8B, or a folder")],
    as_json: JsonOption = False,
) -> None:
    """Fetch a model once, check its digests and keep it under the user cache folder. Again: does nothing."""
    from flywheel.models import pull as pull_model

    _show(pull_model(name, report=say), as_json)


@app.command()
def tiny(
    path: Annotated[Path, typer.Argument(help="folder to make it in")],
    seed: Annotated[int, typer.Option(help="of the random weights")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Make a tiny random Llama with a byte tokenizer, for tests."""
    from flywheel.models import make_tiny

    _show(make_tiny(path, seed=seed), as_json)


def _show(model: object, as_json: bool) -> None:
    from flywheel.models import ModelDir

    assert isinstance(model, ModelDir)
    if as_json:
        print_json({"name": model.name, "path": str(model.path), "digest": model.base_digest})
    else:
        typer.echo(f"{model.name}  {model.base_digest[:12]}  {model.path}")
