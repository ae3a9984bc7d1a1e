"""How a child ends early: asked to, or left alone by a parent that died.

Signals are taken by a thread that waits for them (``sigwait``), not by Python's handlers: those run only between byte
codes of the main thread, and one training step or the loading of a model can take many seconds. Asked while it trains,
the child finishes the step and writes a resume point; asked at any other time, or again, it exits at once, which is
safe because everything on disk is written to survive a kill.

When the parent dies the kernel sends SIGTERM (``PR_SET_PDEATHSIG``), not SIGKILL: the steps since the last resume point
are then kept rather than paid for again by the next attempt, which waits for this child's lock anyway. A deadline after
which the child leaves in any case keeps that wait to seconds. Only a supervised child does this; one started by
hand with ``nohup`` outlives its shell.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping

from flywheel.store.processes import tie_to_parent
from flywheel.training.pipes import tell

INTERRUPTED = 130
"""Exit status of a child that was asked to stop, as shells have it for Ctrl-C."""

ORPHAN_DEADLINE_S = 8.0
PARENT_ENV = "FLYWHEEL_PARENT_PID"
_SAME_REQUEST_S = 1.0
"""One Ctrl-C may arrive twice: from the terminal, and passed on by a parent in the same process group."""
_CAUGHT = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop and left a resume point; its message says how to go on."""


class Stop:
    """Whether the child was asked to stop; ``install`` makes it listen.

    ``saving`` is set by the training loop while it is able to write a resume point.
    """

    def __init__(self) -> None:
        self.saving = False
        self._asked = threading.Event()
        self._parent = os.getppid()

    @property
    def asked(self) -> bool:
        """Whether to stop at the next step's end."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Ask for a stop, as the first signal does."""
        self._asked.set()

    def install(self) -> None:
        """Take SIGINT and SIGTERM from now on. Call on the main thread before any other thread exists."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _CAUGHT)
        threading.Thread(target=self._listen, name="signals", daemon=True).start()

    def _listen(self) -> None:
        first = 0.0
        while True:
            number = signal.sigwait(_CAUGHT)
            orphaned = os.getppid() != self._parent
            insists = self.asked and not orphaned and time.monotonic() - first > _SAME_REQUEST_S
            if not self.saving or insists:
                leave(f"{signal.Signals(number).name}: leaving at once; a re-run goes on from what is on disk")
            first = first or time.monotonic()
            self.ask()
            if orphaned:
                reason = "the parent is gone and the step takes too long: leaving without a new resume point"
                threading.Timer(ORPHAN_DEADLINE_S, leave, (reason,)).start()


def leave(reason: str) -> None:
    """End this process now, as a kill would, but with a line that says why and the interrupted status."""
    tell(reason)
    os._exit(INTERRUPTED)


def die_with_parent(environ: Mapping[str, str]) -> None:
    """Have the kernel end this child when its parent dies, if it is supervised (by ``run_child`` or Dagster Pipes).

    A parent that died before this call leaves no signal behind; then the process that is our parent now is not the
    one that ``FLYWHEEL_PARENT_PID`` names, and the child leaves at once.
    """
    recorded = environ.get(PARENT_ENV)
    if recorded is None and "DAGSTER_PIPES_CONTEXT" not in environ:
        return
    expected = int(recorded) if recorded else os.getppid()
    if not tie_to_parent(expected):
        leave(f"parent {expected} was gone before this child started; nothing was done")


def parent_environment() -> dict[str, str]:
    """What a parent adds to the child's environment so that the child notices its death in every case."""
    return {PARENT_ENV: str(os.getpid())}
