"""Lines of a file with their byte offsets, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

MAX_LINE = 32 * 2**20
"""Longest line that is read whole, in bytes; a longer one is passed over and reported."""

_BLOCK = 2**20
SAMPLE = 4096
"""Bytes that are kept of a line that is too long."""


class FileFault(Exception):
    """A file ended before it should have. Raised behind the last record that could be read; the message is fixed."""


class Line(NamedTuple):
    """One line, or whatever holds one record in another container (`flywheel.intake.containers`).

    Args:
        offset: byte position of its first byte; ``end`` is that of the next line.
        raw: its bytes without the line end; of an oversize line only the first few.
        terminated: whether it ends with a newline; only the last one may not.
        fault: a fixed reason why it cannot hold a record, whatever its bytes are.
    """

    offset: int
    end: int
    raw: bytes
    terminated: bool
    oversize: bool
    fault: str = ""


def read_lines(path: Path, offset: int = 0, *, limit: int = MAX_LINE) -> Iterator[Line]:
    """The lines of ``path`` from a byte offset on. Holds at most ``limit`` bytes of one line at a time."""
    with path.open("rb") as handle:
        handle.seek(offset)
        yield from lines_of(handle, offset, limit=limit)


def lines_of(handle: IO[bytes], offset: int = 0, *, limit: int = MAX_LINE) -> Iterator[Line]:
    """The lines of a stream that stands at ``offset``, as `read_lines` gives them."""
    while raw := handle.readline(limit + 1):
        end = offset + len(raw)
        terminated = raw.endswith(b"\n")
        oversize = not terminated and len(raw) > limit
        if oversize:
            raw = raw[:SAMPLE]
            while not terminated and (more := handle.readline(_BLOCK)):
                end += len(more)
                terminated = more.endswith(b"\n")
        yield Line(offset, end, raw.rstrip(b"\r\n"), terminated, oversize)
        offset = end
