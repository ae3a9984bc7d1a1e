"""Entry point of the ``flywheel`` command."""

from __future__ import annotations

import os
import sys

import typer

from flywheel.cli import (
    champion,
    configuration,
    erase,
    feedback,
    gate,
    intake,
    keys,
    labels,
    loop,
    model,
    review,
    serve,
    status,
    train,
    up,
)
from flywheel.errors import FlywheelError

app = typer.Typer(
    name="flywheel",
    help="The self-hosted data flywheel: production logs in, a better model in the live server out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init")(configuration.init)
app.command("up")(up.up)
app.command("serve")(serve.serve)
app.command("status")(status.status)
app.command("train")(train.train)
app.command("gate")(gate.gate)
app.command("rollback")(champion.rollback)
app.command("erase")(erase.erase)
app.add_typer(loop.app, name="loop")
app.add_typer(intake.app, name="intake")
app.add_typer(feedback.app, name="feedback")
app.add_typer(labels.app, name="labels")
app.add_typer(review.app, name="review")
app.add_typer(champion.app, name="champion")
app.add_typer(model.app, name="model")
app.add_typer(keys.app, name="keys")
app.add_typer(configuration.app, name="config")


def main() -> None:
    """Run the command line; a deliberate error, or one of the system's, is one plain message and exit code 2."""
    try:
        app()
    except FlywheelError as error:
        sys.exit(_explain(str(error)))
    except BrokenPipeError:  # the reader of our output, such as `head`, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        sys.exit(_explain(f"{error.filename}: {error.strerror}" if error.filename else str(error)))


def _explain(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return 2


if __name__ == "__main__":
    main()
