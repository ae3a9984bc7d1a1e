"""What the watcher sees: phases with a clock; a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.status import Status

EVERY_S = 15.0


class Progress:
    """Says what happens. ``step`` replaces the live line; off a terminal it prints at most every 15 s."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stdout, highlight=False)
        self._started = time.monotonic()
        self._status: Status | None = None
        self._printed = 0.0
        self._said = ""

    def phase(self, title: str) -> None:
        """A new act of the story."""
        self.close()
        self.console.print(f"[bold]{self._clock()}  {title}[/bold]")
        if self.console.is_terminal:
            self._status = self.console.status("")
            self._status.start()
        self._printed, self._said = time.monotonic(), ""

    def step(self, text: str) -> None:
        """What is being done just now."""
        if self._status is not None:
            self._status.update(f"{self._clock()}  {text}")
        elif text != self._said and time.monotonic() - self._printed >= EVERY_S:
            self.console.print(f"{self._clock()}    {text}", markup=False, soft_wrap=True)
            self._printed, self._said = time.monotonic(), text

    def note(self, text: str) -> None:
        """A result that stays on the screen."""
        self.console.print(f"{self._clock()}    {text}", markup=False, soft_wrap=True)
        self._printed = time.monotonic()

    def count(self, what: str, done: int, total: int) -> None:
        """So many of so many."""
        self.step(f"{what}: {done} of {total}")

    def close(self) -> None:
        """End the live line."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._started)
        return f"{seconds // 60:2d}:{seconds % 60:02d}"
