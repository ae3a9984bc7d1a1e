"""The chunks of a chat stream, found in its bytes while they come, with the place where each is complete."""

from __future__ import annotations

import json
from collections.abc import Iterator

from flywheel.gateway.bodies import finite
from flywheel.intake.records import BadRecord, Json

_DONE = b"[DONE]"
_BOM = b"\xef\xbb\xbf"


class Events:
    """Reads server-sent events out of pieces that may be cut inside a character, a line or a line end.

    Args:
        longest: longest line, in bytes.

    Attributes:
        done: whether ``[DONE]`` has come.
    """

    def __init__(self, longest: int) -> None:
        self.done = False
        self._longest = longest
        self._line = bytearray()  # the line that has not ended yet
        self._data: list[bytes] = []  # the data lines of the event that has not ended yet
        self._given = False  # whether the chunk of the unfinished line was given already
        self._after_cr = False
        self._first = True

    def feed(self, piece: bytes) -> Iterator[tuple[int, Json | None]]:
        """The chunks that ``piece`` completes, each with the place in it where the line begins that does so.

        A place of 0 may mean a line that began in an earlier piece; None for the chunk means ``[DONE]``. A chunk is
        given as soon as it is JSON, even before its line has ended. Raises BadRecord for data that is never JSON.
        """
        place = 1 if self._after_cr and piece.startswith(b"\n") else 0
        self._after_cr = piece.endswith(b"\r")
        for part in piece[place:].splitlines(keepends=True):
            begins, place = place, place + len(part)
            self._line += part
            if len(self._line) > self._longest:
                raise BadRecord("a line of the stream is too long")
            ended = part.endswith((b"\n", b"\r"))
            if ended or part.endswith((b"}", b"]")):
                for chunk in self._read(bytes(self._line).rstrip(b"\r\n"), ended):
                    yield begins, chunk
            if ended:
                self._line.clear()

    def _read(self, line: bytes, ended: bool) -> Iterator[Json | None]:
        if self._first:
            line = line.removeprefix(_BOM)
            self._first = not ended
        given, self._given = self._given, self._given and not ended
        if not line:
            if self._data:
                raise BadRecord("an event of the stream is not JSON")
            return
        name, _, value = line.partition(b":")
        if name != b"data" or given:  # else a comment, or a field that says nothing about the answer
            return
        last = value.strip()
        data = b"\n".join([*self._data, last])
        found = None
        if data == _DONE:
            self.done = True
        else:
            try:
                found = _object(data)
            except BadRecord:
                if ended:
                    self._data.append(last)
                return
        self._data.clear()
        self._given = not ended
        yield found


def _object(data: bytes) -> Json:
    try:
        value = json.loads(data.decode("utf-8"), parse_float=finite, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise BadRecord("an event of the stream is not JSON") from None
    if not isinstance(value, dict):
        raise BadRecord("an event of the stream is not an object")
    return value
