"""Which format a record is in, asked record by record: a mixed or growing file needs no guess about the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flywheel.config_logs import ColumnMap
from flywheel.errors import IntakeError
from flywheel.intake.containers import container_of, read_records
from flywheel.intake.decode import decode
from flywheel.intake.formats import FORMATS, LogFormat, columns_format, named
from flywheel.intake.places import Readable, shown
from flywheel.intake.reader import FileFault
from flywheel.intake.records import BadRecord, Json, SkippedRecord

UNKNOWN = "no known log format"
"""Reason of a record that no format takes."""

LOOK_AT, LOOK_AT_BYTES = 1000, 8 * 2**20
"""How much of a file is looked at before it is refused, whichever comes first."""


def detect(record: Json) -> LogFormat:
    """The first format that takes the record. Raises BadRecord when none does."""
    for found in FORMATS.values():
        if found.matches(record):
            return found
    raise BadRecord(UNKNOWN)


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
    strange: list[tuple[Readable, Counter[str]]] = []
    for file in files:
        if (why := _strange(file)) is None:
            return
        if why:
            strange.append((file, why))
    for file, why in strange:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in why.most_common())
        raise IntakeError(
            f"{shown(str(file))}: none of its first {why.total()} records is of a known format ({reasons}). `--format`"
            f" names one ({', '.join(FORMATS)}); a table of your own needs a map of its columns (`--columns`)"
        )


def _strange(file: Readable) -> Counter[str] | None:
    """Why the first records are of no known format, counted; None when one is of some."""
    why: Counter[str] = Counter()
    size = 0
    try:
        for line in read_records(file, container_of(file)):
            try:
                detect(decode(line.raw)[0])
            except BadRecord as error:
                why[line.fault or str(error)] += 1
            except SkippedRecord:
                pass  # a blank line
            else:
                return None
            size += len(line.raw)
            if why.total() >= LOOK_AT or size >= LOOK_AT_BYTES:
                break
    except FileFault:
        pass  # reading it will report what is wrong
    return why
