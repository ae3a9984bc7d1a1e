"""What all commands share: the ``--config`` and ``--json`` options, opening a deployment, printing."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from flywheel.config import Config
    from flywheel.store.home import Home
    from flywheel.store.registry import Registry

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="flywheel.yaml; default $FLYWHEEL_CONFIG or ./flywheel.yaml")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
TaskOption = Annotated[str, typer.Option("--task", "-t", help="task name in flywheel.yaml")]


@dataclass(frozen=True)
class Opened:
    """An open deployment."""

    config: Config
    home: Home
    registry: Registry


@contextmanager
def opened(config_path: Path | None, task: str | None = None) -> Iterator[Opened]:
    """Open the deployment, checking that ``task`` exists in it."""
    from flywheel.config import load_config
    from flywheel.store.home import Home
    from flywheel.store.registry import Registry

    config = load_config(config_path)
    if task is not None:
        config.task(task)
    registry = Registry.of(config)
    try:
        yield Opened(config, Home.of(config), registry)
    finally:
        registry.close()


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def print_table(title: str, rows: Sequence[Mapping[str, Any]], *, empty: str, whole: str | None = None) -> None:
    """A table for people; ``empty`` is said when there are no rows; ``whole`` is a column never broken over lines, as
    numbers are not."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not rows:
        console.print(empty, markup=False)
        return
    table = Table(title=Text(title), title_justify="left")
    for name in rows[0]:
        number = all(isinstance(row[name], int) for row in rows)
        table.add_column(name.replace("_", " "), overflow="fold", no_wrap=number or name == whole)
    for row in rows:
        # Text, not a string: rich would take `[...]` and `:smile:` in a customer's message for its own markup.
        table.add_row(*(Text(printable(cell(value))) for value in row.values()))
    console.print(table)


def printable(text: str) -> str:
    """The text with its control characters written out, so that a logged message cannot steer the terminal."""
    return "".join(c if c == "\n" or not unicodedata.category(c).startswith("C") else ascii(c)[1:-1] for c in text)


def when(ts_utc: str | None) -> str | None:
    """A stored time as people read it, to the second."""
    return ts_utc and ts_utc[:19].replace("T", " ")


def cell(value: Any) -> str:
    """A value as a table cell."""
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "; ".join(str(item) for item in value)
    return str(value)


def say(line: str) -> None:
    """A line about progress on standard error, so that standard output stays clean."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
