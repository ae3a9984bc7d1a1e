"""Single keys from a terminal, or lines where standard input is none: from a script, a pipe, a test."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

END = ""
"""What is read at the end of the input."""

_CTRL_D, _ESCAPE = "\x04", "\x1b"


class Keys(Protocol):
    """Where a person's keys come from."""

    def key(self) -> str:
        """The next key, or what a line says; `END` when there will be no more."""

    def line(self, text: str) -> str | None:
        """A typed line; on a terminal ``text`` stands there to be edited. None when there will be none."""


class TerminalKeys:
    """Keys of the terminal that standard input is. It is left as it was after every key, also by Ctrl-C."""

    def key(self) -> str:
        """The next key that is pressed from now on: one that was pressed before was not meant for what is shown now.

        Arrows and other keys that come as escape sequences are passed over: their letters are no answer.
        """
        descriptor = sys.stdin.fileno()
        sys.stdout.flush()
        before = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor, termios.TCSAFLUSH)
            while len(pressed := os.read(descriptor, 64)) > 1 and pressed.startswith(_ESCAPE.encode()):
                pass
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        first = pressed.decode("utf-8", "replace")[:1]
        return END if first == _CTRL_D else first

    def line(self, text: str) -> str | None:
        """A line to type or edit; without readline there is nothing to edit."""
        with _preset(text):
            try:
                return input()
            except EOFError:
                return None


class LineKeys:
    """A line of standard input for every key and every text."""

    def key(self) -> str:
        """What the next line says; a blank one is no key."""
        while line := sys.stdin.readline():
            if line.strip():
                return line.strip()
        return END

    def line(self, text: str) -> str | None:
        """The next line, which may be blank."""
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None


def keys_of_stdin() -> Keys:
    """Keys where standard input is a terminal, lines elsewhere."""
    return TerminalKeys() if sys.stdin.isatty() else LineKeys()


@contextmanager
def _preset(text: str) -> Iterator[None]:
    """The next line of readline begins as ``text``."""
    with suppress(ImportError):
        import readline

        readline.set_startup_hook(lambda: readline.insert_text(text))
        try:
            yield
        finally:
            readline.set_startup_hook(None)
        return
    yield
