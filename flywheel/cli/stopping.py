"""How a command that takes records in is stopped: by Ctrl-C or SIGTERM, at any instant, with a word on how to go on."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

import typer

from flywheel.cli.shared import say

if TYPE_CHECKING:
    from flywheel.intake import SourceReport

INTERRUPTED = 128 + signal.SIGINT
"""Exit code after Ctrl-C, as shells have it."""

TERMINATED = 128 + signal.SIGTERM

GO_ON = "the same command goes on from there"


class Terminated(KeyboardInterrupt):
    """SIGTERM came: end as after Ctrl-C."""


@dataclass
class Taken:
    """What a command has taken in so far.

    Args:
        read: records whose end is stored, by source and kind of pass.
    """

    read: dict[str, int] = field(default_factory=dict)

    def __call__(self, report: SourceReport, what: str = "") -> None:
        """Note a source's counts, as they are after a chunk was committed."""
        self.read[f"{what} {report.source}"] = report.read


@contextmanager
def stoppable(then: str = GO_ON, *, stores: bool = True, quiet: bool = False) -> Iterator[Taken]:
    """End the command with a message when it is stopped: what was stored, and how to go on.

    Args:
        then: how to go on.
        stores: whether the command stores anything at all.
        quiet: leave the message to the caller.
    """
    taken = Taken()
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield taken
    except KeyboardInterrupt as stop:
        count = sum(taken.read.values())
        if quiet:
            pass
        elif not stores:
            say("stopped; nothing was stored")
        elif count:
            say(f"stopped. What became of the {count} records read so far stays; {then}")
        else:
            say("stopped before the first records were stored; the same command begins anew")
        sys.stdout.flush()
        raise typer.Exit(TERMINATED if isinstance(stop, Terminated) else INTERRUPTED) from None
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
