"""Which format a record is in, asked record by record: a mixed or growing file needs no guess about the whole."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from flywheel.config import ColumnMap
from flywheel.errors import IntakeError
from flywheel.intake.containers import container_of, read_records
from flywheel.intake.decode import decode
from flywheel.intake.formats import FORMATS, LogFormat, columns_format, named
from flywheel.intake.places import Readable
from flywheel.intake.reader import FileFault
from flywheel.intake.records import BadRecord, Json, SkippedRecord

_LOOK_AT = 50


def detect(record: Json) -> LogFormat:
    """The first format that takes the record. Raises BadRecord when none does."""
    for found in FORMATS.values():
        if found.matches(record):
            return found
    raise BadRecord("no known log format")


def format_of(record: Json, fmt: str, columns: ColumnMap | None) -> LogFormat:
    """The format that a record of a source is to be read by: detected when ``fmt`` is ``auto`` and there is no map.

    Raises BadRecord when it is to be detected and is none that is known, IntakeError for an unknown name.
    """
    if columns is not None:
        return columns_format(columns)
    return detect(record) if fmt == "auto" else named(fmt)


def check_recognisable(files: Iterable[Readable]) -> None:
    """Raise IntakeError when no file has a record of a known format among its first: the wrong place, most likely.

    One file is enough: a folder may hold others besides.
    """
    strange: list[tuple[Readable, int]] = []
    for file in files:
        if (count := _strange(file)) is None:
            return
        if count:
            strange.append((file, count))
    for file, count in strange:
        known = ", ".join(FORMATS)
        raise IntakeError(
            f"{file}: none of its first {count} records is of a known format ({known}); a table of your own needs a map"
            " of its columns"
        )


def _strange(file: Readable) -> int | None:
    """How many records were looked at and are of no known format; None when one is."""
    count = 0
    try:
        for line in islice(read_records(file, container_of(file)), _LOOK_AT):
            count += 1
            try:
                detect(decode(line.raw)[0])
            except (BadRecord, SkippedRecord):
                continue
            return None
    except FileFault:
        pass  # reading it will report what is wrong
    return count
