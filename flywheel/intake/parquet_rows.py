"""Rows of a Parquet file as JSON objects, batch by batch."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from flywheel.intake.reader import MAX_LINE, SAMPLE, FileFault, Line

NOT_WHOLE = "not a whole Parquet file: read when it is"
DAMAGED = "the Parquet file is damaged: read up to the damage"

_BATCH_ROWS = 1024
_BATCH_BYTES = 16 * 2**20
_EXACT = 2**53


def read_rows(handle: IO[bytes], offset: int = 0, *, limit: int = MAX_LINE) -> Iterator[Line]:
    """The rows from number ``offset`` on, counted from 0; that number is a line's offset.

    Times become ISO text, decimals numbers, bytes text or else base64, and NaN, which Parquet uses for "nothing here",
    null.

    Raises:
        FileFault: the file cannot be read, or not to its end.
    """
    try:
        table = pq.ParquetFile(handle, pre_buffer=False, buffer_size=2**20)
    except (pa.ArrowException, OSError) as error:
        raise FileFault(NOT_WHOLE) from error
    first = 0
    for number in range(table.num_row_groups):
        group = table.metadata.row_group(number)
        if first + group.num_rows > offset:
            per_row = group.total_byte_size // max(group.num_rows, 1) + 1
            size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // per_row))
            yield from _group(table, number, size, first, offset, limit)
        first += group.num_rows


def _group(table: Any, number: int, size: int, first: int, offset: int, limit: int) -> Iterator[Line]:
    batches = table.iter_batches(batch_size=size, row_groups=[number], use_threads=False)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise FileFault(DAMAGED) from error
        if batch is None:
            return
        for place, row in enumerate(_rows(batch), first):
            if place >= offset:
                yield _line(place, row, limit)
        first += batch.num_rows


def _rows(batch: Any) -> list[dict[str, Any] | None]:
    """The rows as plain data; None for one whose text is not UTF-8."""
    try:
        found: list[dict[str, Any] | None] = batch.to_pylist(maps_as_pydicts="lossy")
        return found
    except UnicodeDecodeError:
        if batch.num_rows == 1:
            return [None]
        return [row for place in range(batch.num_rows) for row in _rows(batch.slice(place, 1))]


def _line(place: int, row: dict[str, Any] | None, limit: int) -> Line:
    if row is None:
        return Line(place, place + 1, b"", True, False, "not UTF-8")
    try:
        raw = orjson.dumps(row, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except (orjson.JSONEncodeError, RecursionError):
        return Line(place, place + 1, b"", True, False, "a column's type has no JSON")
    oversize = len(raw) > limit
    return Line(place, place + 1, raw[:SAMPLE] if oversize else raw, True, oversize)


def _plain(value: Any) -> Any:
    """What orjson does not write by itself."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return int(value) if value == int(value) and abs(value) < _EXACT else float(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, date | time):
        return value.isoformat()  # pandas' times, and times with a zone
    raise TypeError
