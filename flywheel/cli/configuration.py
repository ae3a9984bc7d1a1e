"""``flywheel init`` and ``flywheel config``: make, check and show the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, print_json
from flywheel.errors import ConfigError

app = typer.Typer(help="The configuration file.", no_args_is_help=True)
TEMPLATE = Path(__file__).parent / "templates" / "flywheel.yaml"


def init(
    path: Annotated[Path, typer.Argument(help="where to write it")] = Path("flywheel.yaml"),
    task: Annotated[str, typer.Option(help="name of the first task")] = "support_router",
    base: Annotated[str, typer.Option(help="its base model")] = "smollm2-135m",
) -> None:
    """Write a commented flywheel.yaml. An existing file is left alone."""
    from flywheel.config import TASK_NAME

    if not TASK_NAME.match(task):
        raise ConfigError(f"task name {task!r} must match [a-z][a-z0-9_]*")
    text = TEMPLATE.read_text(encoding="utf-8").replace("support_router:", f"{task}:").replace("smollm2-135m", base)
    try:
        with path.open("x", encoding="utf-8") as handle:
            handle.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists; remove it first, or give another path") from None
    typer.echo(f"wrote {path}; next: `flywheel model pull {base}`, then `flywheel up`")


@app.command()
def check(config: ConfigOption = None) -> None:
    """Say whether the configuration and the files it names are valid, and what is wrong where."""
    from flywheel.config import config_path, load_config

    loaded = load_config(config)
    if loaded.formats or any(task.logs for task in loaded.tasks.values()):
        from flywheel.intake.formats import load_formats, named
        from flywheel.intake.sources import path_source

        load_formats(loaded.formats)
    for name, task in loaded.tasks.items():
        if task.suites.golden_file is not None:
            from flywheel.evaluation.items import read_golden_file

            items = read_golden_file(Path(task.suites.golden_file))
            typer.echo(f"{name}: {len(items)} golden items in {task.suites.golden_file}")
        if task.labels.verifiers:
            from flywheel.labels.verify import load_all

            load_all(task.labels.verifiers)
        for log in task.logs:
            if not path_source(log.path).files:
                typer.echo(f"{name}: nothing is at {log.path} yet; it is read as soon as something is", err=True)
            if log.format not in ("auto", "columns"):
                named(log.format)
    typer.echo(f"{config_path(config)}: valid, {len(loaded.tasks)} task(s): {', '.join(loaded.tasks)}")


@app.command()
def show(
    config: ConfigOption = None,
    effective: Annotated[bool, typer.Option("--effective", help="with every default filled in")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the configuration as it was understood."""
    import yaml

    from flywheel.config import load_config

    plain = load_config(config).model_dump(mode="json", exclude_unset=not effective)
    if as_json:
        print_json(plain)
    else:
        typer.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip())
