"""Times as logs write them: ISO 8601 with or without a zone, and epochs in seconds, milli-, micro- or nanoseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)
"""Stored for a time that is missing or cannot be held; `ts_quality` says so."""

EARLIEST = datetime(2015, 1, 1, tzinfo=UTC)
AHEAD = timedelta(days=1)

_MICROSECOND = timedelta(microseconds=1)
_MICROS_A_DAY = timedelta(days=1) // _MICROSECOND

_FIRST_SECOND, _LAST_SECOND = round(EARLIEST.timestamp()), 10**11

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?\Z")
_HOLDABLE = datetime(2200, 1, 1, tzinfo=UTC)
_SCALES = ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (1e20, 1e9))  # an epoch below the bound is in 1/divisor seconds


def parse_time(value: Any, now: datetime) -> tuple[datetime, str]:
    """Read a time.

    Returns it in UTC with its quality: ``ok``, ``missing`` (absent or unreadable; the time is ``UNKNOWN``) or
    ``implausible`` (before 2015 or over a day ahead of ``now``; kept as written where that can be stored).
    A time without a zone is UTC.
    """
    if type(value) is int and _FIRST_SECOND <= value < _LAST_SECOND:
        found: datetime | None = datetime.fromtimestamp(value, UTC)
    else:
        found = _read(value)
    if found is None:
        return UNKNOWN, "missing"
    if EARLIEST <= found <= now + AHEAD:
        return found, "ok"
    return (found if UNKNOWN <= found < _HOLDABLE else UNKNOWN), "implausible"


def micros(time: datetime) -> int:
    """Microseconds since 1970, in which rows are compared."""
    return (time - UNKNOWN) // _MICROSECOND


def from_micros(value: int) -> datetime:
    """The time that `micros` gave."""
    return UNKNOWN + value * _MICROSECOND


def day_of(value: int) -> str:
    """The partition of a time in microseconds since 1970: its day in UTC, ``YYYY-MM-DD``."""
    return _day(value // _MICROS_A_DAY)


def order_time(value: int, quality: str) -> int:
    """The time in microseconds by which a row has its place: one that cannot be true makes nothing the latest."""
    return value if quality == "ok" else 0


def elapsed_ms(start: Any, end: Any) -> float | None:
    """Milliseconds between two times as found, or None when one is missing or they are the wrong way round."""
    first, last = _read(start), _read(end)
    if first is None or last is None or last < first:
        return None
    return (last - first) / timedelta(milliseconds=1)


def _read(value: Any) -> datetime | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        value = value.strip()
        if not _NUMBER.match(value):
            return _iso(value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    for bound, divisor in _SCALES:
        if abs(number) < bound:
            try:
                return UNKNOWN + timedelta(microseconds=round(number / divisor * 1e6))
            except OverflowError:
                return None
    return None


def _iso(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


@lru_cache(1000)
def _day(number: int) -> str:
    return (UNKNOWN + timedelta(days=number)).date().isoformat()
