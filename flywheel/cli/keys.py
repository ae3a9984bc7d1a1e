"""``flywheel keys``: API keys and their scopes."""

from __future__ import annotations

from typing import Annotated

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, opened, print_json, print_table, when

app = typer.Typer(help="API keys. Scopes: infer, feedback, ingest, read, review, operate.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="who or what will use it")],
    scope: Annotated[list[str] | None, typer.Option(help="repeat for several; default infer and feedback")] = None,
    config: ConfigOption = None,
) -> None:
    """Make a key and print it once; only its hash is stored."""
    from flywheel.gateway.keys import create_key

    with opened(config) as o:
        typer.echo(create_key(o.registry, name, scope or ["infer", "feedback"]))


@app.command("list")
def list_(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List keys by name and scopes."""
    from flywheel.gateway.keys import list_keys

    with opened(config) as o:
        rows = list_keys(o.registry)
    if as_json:
        print_json(rows)
    else:
        short = [row | {"at": when(row["at"]), "revoked_at": when(row["revoked_at"])} for row in rows]
        print_table("Keys", short, empty="no keys: only a loopback gateway will start")


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="from `flywheel keys list`")], config: ConfigOption = None
) -> None:
    """Make a key useless at once."""
    from flywheel.errors import ConfigError
    from flywheel.gateway.keys import revoke_key

    with opened(config) as o:
        if not revoke_key(o.registry, key_id):
            raise ConfigError(f"{key_id}: no valid key has this id; `flywheel keys list` shows them")
    typer.echo(f"{key_id} is revoked")
