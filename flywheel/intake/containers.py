"""In what a log's records lie: JSON lines, a JSON array, CSV or Parquet; the first three also as gzip or zstd.

Whatever the container, a record is a `Line` whose ``raw`` is its JSON. Offsets are bytes of the content, decompressed;
in Parquet they are row numbers.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import orjson

from flywheel.intake.csv_rows import discard, read_csv
from flywheel.intake.inflate import Inflated, compression
from flywheel.intake.json_values import read_values
from flywheel.intake.places import Readable, reached
from flywheel.intake.reader import MAX_LINE, FileFault, Line, lines_of

LINES, ARRAY, CSV, PARQUET = "lines", "array", "csv", "parquet"

_HEAD = 2**16
_PACKED_SUFFIX = re.compile(r"\.(gz|zst)\Z", re.IGNORECASE)
_CSV_SUFFIX = re.compile(r"\.[ct]sv\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Container:
    """What a file is.

    Args:
        kind: ``lines``, ``array``, ``csv`` or ``parquet``.
        packed: ``gzip``, ``zstd`` or "".
    """

    kind: str
    packed: str = ""

    @property
    def addressable(self) -> bool:
        """Whether an offset is a place in the file itself."""
        return not self.packed and self.kind != PARQUET


JSON_LINES = Container(LINES)


def container_of(file: Readable) -> Container:
    """Which container a file is, by its first bytes; only CSV is told by its name."""
    with _opened(file) as handle:
        head = handle.read(_HEAD)
        packed = compression(head)
        if packed:
            handle.seek(0)
            head = io.BufferedReader(Inflated(handle, packed), _HEAD).read(_HEAD)
    return Container(_kind(head, str(file)), packed)


def read_records(
    file: Readable, container: Container, offset: int = 0, *, closed: bool = True, limit: int = MAX_LINE
) -> Iterator[Line]:
    """The records of a file from an offset on, in bounded memory.

    Args:
        closed: whether nobody will append to the file.

    Raises:
        FileFault: behind the last record, when the file ends before it should. What it tore is not given out.
        IntakeError: the file cannot be read.
    """
    with _opened(file) as handle:
        if not container.packed:
            yield from _records(handle, container.kind, offset, closed, limit)
            return
        unpacked = Inflated(handle, container.packed)
        stream = io.BufferedReader(unpacked, 2**17)
        try:
            for line in _records(stream, container.kind, offset, closed, limit):
                if line.terminated or not unpacked.fault:
                    yield line
        except FileFault as fault:
            raise FileFault(unpacked.fault or str(fault)) from None
        if unpacked.fault:
            raise FileFault(unpacked.fault)


def _records(stream: IO[bytes], kind: str, offset: int, closed: bool, limit: int) -> Iterator[Line]:
    if kind == PARQUET:
        # Imported late: most logs are lines, and pyarrow takes its time.
        from flywheel.intake.parquet_rows import read_rows

        return read_rows(stream, offset, limit=limit)
    if kind == CSV:
        return read_csv(stream, offset, closed=closed, limit=limit)
    discard(stream, offset)
    if kind == ARRAY:
        return read_values(stream, offset, limit=limit)
    return lines_of(stream, offset, limit=limit)


def _kind(head: bytes, name: str) -> str:
    if head.startswith(b"PAR1"):
        return PARQUET
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    line, newline, rest = text.partition(b"\n")
    if text.startswith(b"["):
        # A list may also be the first, useless line of a file of lines.
        return LINES if newline and rest.lstrip().startswith(b"{") and _is_json(line) else ARRAY
    if line.strip() == b"{":
        return ARRAY  # objects over several lines
    if not text.startswith(b"{") and _CSV_SUFFIX.search(_PACKED_SUFFIX.sub("", name)):
        return CSV
    return LINES


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


@contextmanager
def _opened(file: Readable) -> Iterator[IO[bytes]]:
    with reached(file), file.open("rb") as handle:
        yield handle
