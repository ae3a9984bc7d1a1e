"""The list of log formats: a format is one module with one function under this decorator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flywheel.errors import IntakeError
from flywheel.intake.decode import noting
from flywheel.intake.records import (
    BadRecord,
    Context,
    Dropped,
    FeedbackRecord,
    InteractionRecord,
    Json,
    NothingLeft,
    Parsed,
    Record,
    SkippedRecord,
)

Parse = Callable[[Json, Context], Parsed]
Matches = Callable[[Json], bool]

NOT_OF = "not a record of the format"
"""How the reason begins for a record of which the format that was named for it knows nothing."""


@dataclass(frozen=True)
class LogFormat:
    """A log format: ``matches`` looks at keys only, ``parse`` makes records or raises Bad- or SkippedRecord.

    Args:
        keys: what ``matches`` looks for, in words, for a person who asks why the format was detected.
    """

    name: str
    matches: Matches
    parse: Parse
    keys: str = ""

    def records(self, record: Json, context: Context, repairs: set[str] | None = None) -> tuple[Record | Dropped, ...]:
        """All that ``parse`` finds in one input record, in its order. Raises Bad- or SkippedRecord.

        Args:
            repairs: takes in what was repaired in JSON texts inside the record.
        """
        try:
            found = noting(set() if repairs is None else repairs, self.parse, record, context)
        except NothingLeft:
            raise
        except SkippedRecord:
            if self.matches(record):
                raise
            raise BadRecord(f"{NOT_OF} {self.name}") from None  # a wrong format has no rule by which to skip
        if isinstance(found, InteractionRecord | FeedbackRecord):
            return (found,)
        if all(isinstance(one, Dropped) for one in found):
            raise BadRecord(next((one.reason for one in found if isinstance(one, Dropped)), "nothing found in it"))
        return tuple(found)


FORMATS: dict[str, LogFormat] = {}


def log_format(name: str, matches: Matches, keys: str = "") -> Callable[[Parse], Parse]:
    """Register the decorated function as the parser of ``name``; detection asks formats in order of registration."""

    def add(parse: Parse) -> Parse:
        FORMATS[name] = LogFormat(name, matches, parse, keys)
        return parse

    return add


def named(name: str) -> LogFormat:
    """The format of that name. Raises IntakeError listing the known ones."""
    if name not in FORMATS:
        raise IntakeError(f"unknown log format {name!r}; known: auto, {', '.join(FORMATS)}")
    return FORMATS[name]
