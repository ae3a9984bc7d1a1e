"""Lines of a file with their byte offsets, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_LINE = 32 * 2**20
"""Longest line that is read whole, in bytes; a longer one is passed over and reported."""

_BLOCK = 2**20
_SAMPLE = 4096


@dataclass(frozen=True)
class Line:
    """One line.

    Args:
        offset: byte position of its first byte; ``end`` is that of the next line.
        raw: its bytes without the line end; of an oversize line only the first few.
        terminated: whether it ends with a newline; only the last one may not.
    """

    offset: int
    end: int
    raw: bytes
    terminated: bool
    oversize: bool


def read_lines(path: Path, offset: int = 0, *, limit: int = MAX_LINE) -> Iterator[Line]:
    """The lines of ``path`` from a byte offset on. Holds at most ``limit`` bytes of one line at a time."""
    with path.open("rb") as handle:
        handle.seek(offset)
        while raw := handle.readline(limit + 1):
            end = offset + len(raw)
            terminated = raw.endswith(b"\n")
            oversize = not terminated and len(raw) > limit
            if oversize:
                raw = raw[:_SAMPLE]
                while not terminated and (more := handle.readline(_BLOCK)):
                    end += len(more)
                    terminated = more.endswith(b"\n")
            yield Line(offset, end, raw.rstrip(b"\r\n"), terminated, oversize)
            offset = end
