"""Launching and supervising a child without Dagster: its lines as they come, Ctrl-C passed on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from flywheel.training.signals import INTERRUPTED, parent_environment


def child_command(spec_path: Path) -> list[str]:
    """The command line of a child, for ``run_child`` and for Dagster Pipes alike."""
    return [sys.executable, "-m", "flywheel.training", "--spec", str(spec_path)]


def run_child(spec_path: Path, *, on_line: Callable[[str], None]) -> int:
    """Run a spec in a child process and wait for it.

    Args:
        on_line: gets each line that the child writes to stderr, without its newline.

    Returns:
        The child's exit status: 0 done, 2 a Flywheel error (its line has been passed on), 130 stopped with a resume
        point, negative when a signal killed it.

    Ctrl-C asks the child to stop and waits for its resume point; a second one ends it at once. When this process dies
    the child goes too.
    """
    process = subprocess.Popen(
        child_command(spec_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **parent_environment()},
        # Out of the terminal's foreground group: one Ctrl-C must reach the child once, through this function.
        process_group=0,
    )
    try:
        status, interrupted = _supervise(process, on_line)
    finally:
        process.kill()  # only matters when on_line raised; a process that has ended is left alone
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
    if interrupted and status != 0:
        on_line("stopped; run the same command again to go on from the last resume point")
        return INTERRUPTED
    return status


def _supervise(process: subprocess.Popen[str], on_line: Callable[[str], None]) -> tuple[int, bool]:
    """The exit status, and whether Ctrl-C was pressed on the way."""
    interrupts = 0
    while True:
        try:
            for line in process.stderr or ():
                on_line(line.rstrip("\n"))
            return process.wait(), interrupts > 0
        except KeyboardInterrupt:
            interrupts += 1
            process.send_signal(signal.SIGINT if interrupts == 1 else signal.SIGKILL)
            if interrupts == 1:
                on_line("stopping after this step; press Ctrl-C again to stop at once")
