"""``flywheel gate``: the verdict on a candidate, as an exit code for CI."""

from __future__ import annotations

from typing import Annotated

import typer

from flywheel.cli.shared import ConfigOption, JsonOption, TaskOption, opened, print_json, print_table, say
from flywheel.errors import FlywheelError

EXIT_CODES = {"promote": 0, "reject": 1, "inconclusive": 2, "invalid": 3}
FAILED = 4


def gate(
    task: TaskOption,
    candidate: Annotated[str, typer.Option(help="digest of a release (or a unique beginning of it)")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a release against the champion and judge it; promotes nothing.

    Exit code 0 promote, 1 reject, 2 inconclusive, 3 invalid; 4 when no verdict could be reached.
    """
    from flywheel.loops.managed import judge_release

    try:
        with opened(config, task) as o:
            decision = judge_release(o.config, o.home, o.registry, task, candidate, say=say)
    except FlywheelError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(FAILED) from error
    if as_json:
        print_json(vars(decision))
    else:
        rows = [{"verdict": decision.verdict, "decision": decision.digest[:12], "reasons": decision.reasons}]
        print_table(f"{task}: {candidate}", rows, empty="")
    raise typer.Exit(EXIT_CODES[decision.verdict])
