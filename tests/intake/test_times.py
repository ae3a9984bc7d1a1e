"""Times as logs write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.times import UNKNOWN, parse_time

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOON = datetime(2025, 11, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        "2025-11-01T10:00:00+00:00",
        "2025-11-01T12:00:00+02:00",
        "2025-11-01T10:00:00Z",
        "2025-11-01 10:00:00.000000",
        " 2025-11-01T10:00 ",
        1761991200,
        1761991200.0,
        "1761991200",
        1761991200_000,
        1761991200_000_000,
        1761991200_000_000_000,
        "1.7619912e9",
    ],
)
def test_every_spelling_of_one_instant_is_that_instant(value: object) -> None:
    assert parse_time(value, NOW) == (NOON, "ok")


@pytest.mark.parametrize(
    "value", [None, "", "yesterday", True, [], {}, 1e30, "9" * 400, "2025-13-01", "0001-01-01T00:00+23:00"]
)
def test_a_time_that_cannot_be_read_is_missing(value: object) -> None:
    assert parse_time(value, NOW) == (UNKNOWN, "missing")


@pytest.mark.parametrize("value", ["2014-12-31T23:59:59Z", "2026-01-02T00:00:01Z", 20251101, -5, 0, "9999-12-31"])
def test_a_time_that_cannot_be_true_is_implausible(value: object) -> None:
    assert parse_time(value, NOW)[1] == "implausible"


def test_a_time_up_to_a_day_ahead_is_a_clock_that_runs_fast() -> None:
    assert parse_time("2026-01-01T23:00:00Z", NOW)[1] == "ok"


@given(st.text() | st.integers() | st.floats() | st.datetimes().map(str) | st.lists(st.none()))
def test_any_value_gives_a_time_that_can_be_stored(value: object) -> None:
    found, quality = parse_time(value, NOW)
    assert 1970 <= found.year < 2200 and found.utcoffset() == UNKNOWN.utcoffset()
    assert quality in ("ok", "missing", "implausible")
