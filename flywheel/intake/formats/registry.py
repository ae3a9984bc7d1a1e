"""The list of log formats: a format is one module with one function under this decorator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flywheel.errors import IntakeError
from flywheel.intake.records import Context, Json, Record

Parse = Callable[[Json, Context], Record]
Matches = Callable[[Json], bool]


@dataclass(frozen=True)
class LogFormat:
    """A log format: ``matches`` looks at keys only, ``parse`` makes a record or raises Bad- or SkippedRecord."""

    name: str
    matches: Matches
    parse: Parse


FORMATS: dict[str, LogFormat] = {}


def log_format(name: str, matches: Matches) -> Callable[[Parse], Parse]:
    """Register the decorated function as the parser of ``name``; detection asks formats in order of registration."""

    def add(parse: Parse) -> Parse:
        FORMATS[name] = LogFormat(name, matches, parse)
        return parse

    return add


def named(name: str) -> LogFormat:
    """The format of that name. Raises IntakeError listing the known ones."""
    if name not in FORMATS:
        raise IntakeError(f"unknown log format {name!r}; known: auto, {', '.join(FORMATS)}")
    return FORMATS[name]
