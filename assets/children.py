"""Running a child process under Dagster Pipes."""

import os
from pathlib import Path

import dagster as dg

from flywheel.training.child import child_command
from flywheel.training.signals import parent_environment


def run_piped(context: dg.AssetExecutionContext, spec_path: Path) -> None:
    """Run ``python -m flywheel.training`` on a spec; its progress goes to the run's log.

    The child dies with this process. Raises Dagster's Failure when it ends with an error; the run's log holds its line.
    """
    client = dg.PipesSubprocessClient(forward_termination=True)
    client.run(
        context=context,
        command=child_command(spec_path),
        env={**os.environ, **parent_environment()},
    )
