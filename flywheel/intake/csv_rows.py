"""Rows of a CSV file as JSON objects of texts, named by the header row; with exact byte offsets."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from typing import IO

import orjson

from flywheel.intake.reader import MAX_LINE, SAMPLE, FileFault, Line, lines_of

NO_HEADER = "the CSV file has no header row of different names"
RAGGED = "another number of cells than the header has"
NOT_CSV = "not CSV"
TORN = "torn last line"

_DELIMITERS = (",", ";", "\t")


def read_csv(stream: IO[bytes], offset: int = 0, *, closed: bool = True, limit: int = MAX_LINE) -> Iterator[Line]:
    """The rows from a byte offset on, which is 0 or the start of a row.

    Args:
        stream: stands at the start of the file.
        closed: whether nobody will append; else a last row without its line end is not whole yet.

    Raises:
        FileFault: there is no header to name the cells.
    """
    first = next(lines_of(stream, limit=limit), None)
    if first is None:
        return
    names, delimiter = _header(first)
    start = max(offset, first.end)
    discard(stream, start - first.end)
    feed = _Feed(lines_of(stream, start, limit=limit), start)
    csv.field_size_limit(limit)
    rows = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        start = feed.end
        feed.raw.clear()
        cells: list[str] | None = None
        try:
            cells = next(rows)
        except StopIteration:
            return
        except _TooLong:
            pass
        except csv.Error:
            if feed.end - start > limit:
                feed.skip_to(lambda text: _is_row(text, names, delimiter))
        waiting = not feed.terminated and not closed
        oversize = feed.oversize or feed.end - start > limit
        fault = _fault(cells, names, feed.terminated, waiting)
        if cells and not fault and not oversize:
            yield Line(start, feed.end, _json(dict(zip(names, cells, strict=True))), feed.terminated, False)
        else:
            yield Line(start, feed.end, bytes(feed.raw[:SAMPLE]).strip(), feed.terminated, oversize, fault)


def _is_row(text: str, names: list[str], delimiter: str) -> bool:
    try:
        return [len(cells) for cells in csv.reader([text], delimiter=delimiter, strict=True)] == [len(names)]
    except csv.Error:
        return False


def _fault(cells: list[str] | None, names: list[str], terminated: bool, waiting: bool) -> str:
    if waiting or (not terminated and (cells is None or len(cells) != len(names))):
        return TORN
    if cells is None:
        return NOT_CSV
    return "" if not cells or len(cells) == len(names) else RAGGED


def discard(stream: IO[bytes], count: int) -> None:
    """Read over so many bytes of a stream that may not be able to seek."""
    if stream.seekable():
        stream.seek(count, 1)
        return
    while count > 0 and (gone := len(stream.read(min(count, 2**20)))):
        count -= gone


class _TooLong(Exception):
    pass


class _Feed:
    """Lines as texts for the `csv` module, and how far it has read.

    Attributes:
        end: byte offset behind the last line that was handed out.
        raw: the bytes of the row that is being read.
    """

    def __init__(self, lines: Iterator[Line], end: int) -> None:
        self.end, self.raw = end, bytearray()
        self.terminated, self.oversize = True, False
        self._lines = lines
        self._next: Line | None = None

    def skip_to(self, wanted: Callable[[str], bool]) -> None:
        """Pass over what is left of a row that is too long: everything before the next line that is a row by itself."""
        for line in self._lines:
            if not line.oversize and wanted(line.raw.decode("utf-8", "surrogateescape")):
                self._next = line
                return
            self.end, self.terminated = line.end, line.terminated

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        line, self._next = self._next or next(self._lines), None
        stripped = line.end - line.offset - len(line.raw)
        self.end, self.terminated, self.oversize = line.end, line.terminated, line.oversize
        if line.oversize:
            self.raw += line.raw
            raise _TooLong
        # Within quotes a line end belongs to the cell, as it is.
        raw = line.raw + b"\r" * (stripped - line.terminated) + b"\n" * line.terminated
        self.raw += raw
        return raw.decode("utf-8", "surrogateescape")


def _header(line: Line) -> tuple[list[str], str]:
    """The names of the columns, and the delimiter of which the header has most."""
    text = line.raw.decode("utf-8-sig", "replace")
    delimiter = max(_DELIMITERS, key=text.count)
    try:
        names = [] if line.oversize else next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error:
        names = []
    if not names or len(set(names)) < len(names):
        raise FileFault(NO_HEADER)
    return names, delimiter


def _json(row: dict[str, str]) -> bytes:
    try:
        return orjson.dumps(row)
    except orjson.JSONEncodeError:  # bytes that are no UTF-8, which decoding is to find
        return json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogateescape")
