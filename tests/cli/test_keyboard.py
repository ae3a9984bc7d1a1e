"""Single keys of a real terminal: read at once, and the terminal left as it was."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

PROGRAM = """
from flywheel.cli.keyboard import keys_of_stdin
print("got", ascii(keys_of_stdin().key()))
"""


@dataclass
class Terminal:
    """A pseudo-terminal with a program at it that waits for a key."""

    ours: int
    theirs: int
    before: list[Any]
    program: subprocess.Popen[bytes]

    def is_as_before(self) -> bool:
        return termios.tcgetattr(self.theirs) == self.before

    def send_when_asked(self, keys: bytes) -> None:
        """Press keys once the terminal gives them one by one."""
        deadline = time.monotonic() + 60
        while termios.tcgetattr(self.theirs)[3] & termios.ICANON:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.write(self.ours, keys)

    def said(self) -> str:
        """What the program had written when it ended."""
        self.program.wait(60)
        return os.read(self.ours, 4096).decode()


@pytest.fixture
def typed_before() -> bytes:
    """What is typed before the program runs."""
    return b""


@pytest.fixture
def terminal(typed_before: bytes) -> Iterator[Terminal]:
    ours, theirs = os.openpty()
    os.write(ours, typed_before)

    def take_it() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-c", PROGRAM]
    program = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=take_it)
    yield Terminal(ours, theirs, before, program)
    program.kill()
    program.wait()
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize(
    ("sent", "got"), [(b"y", "'y'"), (b"\x04", "''"), (b"\x1b", "'\\x1b'"), ("é".encode(), "'\\xe9'"), (b"yn", "'y'")]
)
def test_a_key_is_read_without_enter_and_the_terminal_is_as_before(terminal: Terminal, sent: bytes, got: str) -> None:
    terminal.send_when_asked(sent)
    assert f"got {got}" in terminal.said()
    assert terminal.is_as_before()


def test_an_arrow_is_no_answer(terminal: Terminal) -> None:
    terminal.send_when_asked(b"\x1b[A")
    time.sleep(0.3)
    assert terminal.program.poll() is None
    terminal.send_when_asked(b"n")
    assert "got 'n'" in terminal.said()


def test_ctrl_c_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    terminal.send_when_asked(b"\x03")
    assert "KeyboardInterrupt" in terminal.said()
    assert terminal.is_as_before()


@pytest.mark.parametrize("typed_before", [b"yyy", b"y\n"])
def test_what_was_typed_before_the_question_is_no_answer(terminal: Terminal) -> None:
    terminal.send_when_asked(b"n")
    assert "got 'n'" in terminal.said()
