"""Which format a record is in, asked record by record: a mixed or growing file needs no guess about the whole."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from flywheel.errors import IntakeError
from flywheel.intake.decode import decode
from flywheel.intake.formats import FORMATS, LogFormat
from flywheel.intake.reader import read_lines
from flywheel.intake.records import BadRecord, Json, SkippedRecord

_LOOK_AT = 50


def detect(record: Json) -> LogFormat:
    """The first format that takes the record. Raises BadRecord when none does."""
    for found in FORMATS.values():
        if found.matches(record):
            return found
    raise BadRecord("no known log format")


def check_recognisable(path: Path) -> None:
    """Raise IntakeError when none of a file's first records is of a known format: the wrong file, most likely."""
    lines = 0
    for line in islice(read_lines(path), _LOOK_AT):
        lines += 1
        try:
            detect(decode(line.raw)[0])
        except (BadRecord, SkippedRecord):
            continue
        return
    if lines:
        raise IntakeError(
            f"{path}: none of its first {lines} lines is a record of a known format ({', '.join(FORMATS)})"
        )
