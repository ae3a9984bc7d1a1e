"""The elements of a JSON array, or JSON values one after the other, with their byte offsets and in bounded memory.

Nothing is parsed here: an element ends where its brackets do. What stands between elements and is none is a record of
its own, so that it ends in quarantine and costs its neighbours nothing. An element whose brackets or quotes do not
close ends where a line begins as its own did, as far as that shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

from flywheel.intake.reader import MAX_LINE, SAMPLE, FileFault, Line

NOT_CLOSED = "the JSON array does not end: read so far, and on from there when it has grown"

_BLOCK = 2**20
_BETWEEN = re.compile(rb"[ \t\r\n,]*")
# Both match to the next byte that matters, or to where the bytes end. The counts bound what one match may remember.
_OUTSIDE = re.compile(rb'[^"{}\[\]]*(?:"[^"\\\n]*"[^"{}\[\]]*){0,500}')
_TEXT = re.compile(rb'[^"\\]*(?:\\.[^"\\]*){0,500}', re.DOTALL)
_OTHER_ENDS = re.compile(rb'[,"{}\[\]\n]')
_BOM = b"\xef\xbb\xbf"
_QUOTE, _BACKSLASH, _OBJECT = b'"\\{'
_OPENING = b"{["
_INDENT = 1024


def read_values(stream: IO[bytes], offset: int = 0, *, limit: int = MAX_LINE, block: int = _BLOCK) -> Iterator[Line]:
    """The elements from a byte offset on, which is the start of the file or the end of an element.

    Args:
        stream: stands at ``offset``.
        limit: an element of more bytes is passed over and marked oversize.
        block: bytes to read at a time.

    Raises:
        FileFault: at the end, when an array was not closed.
    """
    return _Values(stream, offset, limit, block).read()


class _Values:
    """A window on the stream: ``held`` are its bytes from ``base`` on."""

    def __init__(self, stream: IO[bytes], base: int, limit: int, block: int) -> None:
        self.stream, self.base, self.limit, self.block = stream, base, limit, block
        self.held = bytearray()
        self.mark = b""  # the line's end, indent and bracket with which the element began; "" within a line

    def read(self) -> Iterator[Line]:
        inside = self.base > 0
        if not self.base and self._at(2) and self.held.startswith(_BOM):
            self._drop(len(_BOM))
        while self._skip():
            first = self.held[0]
            if first in b"]" and inside:
                inside = False
                self._drop(1)
            elif first in b"[" and not inside:
                inside = True
                self._drop(1)
            elif first in b'"{[':
                yield self._nested()
            else:
                yield self._other()
        if inside:
            raise FileFault(NOT_CLOSED)

    def _skip(self) -> bool:
        """Go to the next byte that separates nothing; False at the end."""
        gap = b""
        while True:
            found = _BETWEEN.match(self.held)
            length = found.end() if found else 0
            gap = (gap + self.held[:length])[-_INDENT:]
            self._drop(length)
            if self.held:
                self.mark = gap[gap.rfind(b"\n") :] + self.held[:1] if b"\n" in gap else b""
                return True
            if not self._fill():
                return False

    def _nested(self) -> Line:
        """A text, or what stands in brackets, to where it closes: whatever is inside is none of our business."""
        in_text = self.held[0] == _QUOTE
        open_ = bytearray() if in_text else bytearray(self.held[:1])
        broken = False
        place, skipped, sample = 1, 0, b""
        while True:
            start = place
            place = (_TEXT if in_text else _OUTSIDE).match(self.held, place).end()  # type: ignore[union-attr]
            if in_text and self.mark:  # no text holds a line's end
                following = self.held.find(self.mark, max(0, start - len(self.mark)), place)
                if following >= 0:
                    return self._line(following, skipped, sample)
            if place < len(self.held):
                byte = self.held[place]
                if byte == _BACKSLASH:
                    if place + 1 < len(self.held):
                        continue  # one match takes so many escapes only
                else:
                    place += 1
                    if byte == _QUOTE:
                        in_text = not in_text
                    elif byte in _OPENING:
                        # An object is no member of an object: this is the next element, and this one was cut.
                        if (broken or open_[-1] == _OBJECT) and self.mark and self.held.endswith(self.mark, 0, place):
                            return self._line(place - len(self.mark), skipped, sample)
                        open_.append(byte)
                    else:
                        broken |= byte != open_.pop() + 2
                    if not (open_ or in_text):
                        return self._line(place, skipped, sample)
                    continue
            if skipped or place > self.limit:
                place, skipped, sample = self._pass_over(place, skipped, sample)
            if not self._fill():
                return self._line(len(self.held), skipped, sample, terminated=False)

    def _other(self) -> Line:
        """A number, a word or stray text, to the next thing that could separate or begin an element."""
        place = 1
        skipped = 0
        sample = b""
        while True:
            if found := _OTHER_ENDS.search(self.held, place):
                return self._line(found.start(), skipped, sample)
            place = len(self.held)
            if skipped or place > self.limit:
                place, skipped, sample = self._pass_over(place, skipped, sample)
            if not self._fill():
                return self._line(len(self.held), skipped, sample, terminated=False)

    def _pass_over(self, place: int, skipped: int, sample: bytes) -> tuple[int, int, bytes]:
        """Let go of what was looked at of an element that is too long; the place, what is gone, and how it began."""
        sample = sample or bytes(self.held[:SAMPLE])
        self._drop(place)
        return 0, skipped + place, sample

    def _line(self, length: int, skipped: int, sample: bytes, *, terminated: bool = True) -> Line:
        raw = bytes(self.held[:length])
        start = self.base - skipped
        self._drop(length)
        oversize = bool(skipped) or length > self.limit
        return Line(start, self.base, (sample or raw[:SAMPLE]) if oversize else raw.rstrip(), terminated, oversize)

    def _at(self, place: int) -> bool:
        """Whether there is a byte at that place; reads up to there."""
        while len(self.held) <= place:
            if not self._fill():
                return False
        return True

    def _fill(self) -> bool:
        more = self.stream.read(self.block)
        self.held += more
        return bool(more)

    def _drop(self, count: int) -> None:
        del self.held[:count]
        self.base += count
