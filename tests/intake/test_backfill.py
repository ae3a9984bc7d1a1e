"""Reading days again: what is missing comes in, nothing else changes."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.errors import IntakeError
from flywheel.intake import SourceReport, intake_digest, run_backfill, run_intake
from flywheel.intake.backfill import IN_QUARANTINE, NO_DAY, OTHER_DAY
from flywheel.intake.days import content_digest, last_read_day, rows_by_day, written_days
from flywheel.store.registry import schema
from flywheel.store.segments import read_rows

DAY = 86_400
FIRST = date(2025, 3, 1)
"""The day of call 0, at noon."""


def intake(at: Any) -> Any:
    return run_intake(at.config, at.home, at.registry, at.task)


def backfill(at: Any, first: int, last: int, run: str = "backfill") -> SourceReport:
    days = (FIRST + timedelta(days=first), FIRST + timedelta(days=last))
    (report,) = run_backfill(at.config, at.home, at.registry, at.task, *days, run=run).sources
    report.check()
    return report


def counts(report: SourceReport) -> tuple[int, ...]:
    return report.read, report.kept, report.duplicate, report.quarantined, report.skipped


def registry_rows(at: Any, table: Any) -> list[Any]:
    with at.registry.read() as tx:
        return tx.rows(sa.select(table))


def test_what_is_there_is_a_duplicate_and_nothing_changes(deployment: Any, traffic: Any) -> None:
    at = deployment
    traffic.write(
        *(traffic.call(number * DAY // 2) for number in range(8)), traffic.feedback(DAY, text="x"), b"broken\n"
    )
    intake(at)
    before = (
        intake_digest(at.home, at.registry, at.task),
        registry_rows(at, schema.sources),
        registry_rows(at, schema.segments),
    )
    report = backfill(at, 1, 2, run="day run")
    assert counts(report) == (10, 0, 5, 0, 5)
    assert report.reasons == {OTHER_DAY: 4, NO_DAY: 1}
    assert before == (
        intake_digest(at.home, at.registry, at.task),
        registry_rows(at, schema.sources),
        registry_rows(at, schema.segments),
    )
    (stored,) = [row for row in registry_rows(at, schema.intake_counts) if row["run"] == "day run"]
    assert stored["read"] == stored["duplicate"] + stored["skipped"] == 10


def test_only_records_of_the_days_come_in_and_no_resume_point_moves(deployment: Any, traffic: Any) -> None:
    at = deployment
    traffic.write(*(traffic.call(number * DAY) for number in range(5)), traffic.feedback(0, text="x"))
    report = backfill(at, 1, 2)
    assert counts(report) == (6, 2, 0, 0, 4)
    assert list(rows_by_day(at.registry, at.task)) == ["2025-03-02", "2025-03-03"]
    assert registry_rows(at, schema.sources) == []
    assert counts(intake(at).sources[0]) == (6, 4, 2, 0, 0)
    assert counts(backfill(at, 0, 4)) == (6, 0, 6, 0, 0)


def test_what_a_mended_format_reads_is_added_without_a_second_row_of_the_rest(
    deployment: Any, traffic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flywheel.intake.formats import FORMATS, LogFormat

    at = deployment
    traffic.write(traffic.call(1), traffic.call(2, v=2), traffic.call(DAY, v=2))
    intake(at)
    was = FORMATS["gateway"]
    new = LogFormat("gateway", was.matches, lambda record, context: was.parse(record | {"v": 1}, context), was.keys)
    monkeypatch.setitem(FORMATS, "gateway", new)
    assert counts(backfill(at, 0, 0)) == (3, 1, 1, 0, 1)
    rows = read_rows(at.home, at.registry, "interactions", at.task, "ts")
    assert [row["interaction_id"] for row in rows] == [traffic.call_id(1), traffic.call_id(2)]


def test_a_backfill_puts_nothing_into_quarantine_twice(deployment: Any, traffic: Any) -> None:
    at = deployment
    traffic.write(traffic.call(1), traffic.call(1, "other"), b"broken\n")
    intake(at)
    report = backfill(at, 0, 0)
    assert (counts(report), report.reasons) == ((3, 0, 1, 0, 2), {IN_QUARANTINE: 1, NO_DAY: 1})
    assert len(read_rows(at.home, at.registry, "quarantine", at.task, "source_offset")) == 2


def test_a_backfill_killed_at_any_instant_and_repeated_ends_as_an_undisturbed_one(
    make_deployment: Any, traffic_of: Any, dies_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flywheel.intake import reading

    monkeypatch.setattr(reading, "CHUNK_RECORDS", 3)
    found = []
    crashes = 0
    for name in ("calm", "stormy"):
        at = make_deployment(name)
        (at.home.root / "secret.key").write_bytes(b"s" * 32)
        traffic = traffic_of(at.home)
        calls = [traffic.call(n * DAY // 4, conversation_id=f"talk-{n % 2}") for n in range(12)]
        traffic.write(*calls, traffic.feedback(DAY, text="sales"))
        while name == "stormy" and dies_at(crashes % 19, lambda at=at: backfill(at, 0, 1)):
            crashes += 1
        backfill(at, 0, 1)
        found.append((intake_digest(at.home, at.registry, at.task), registry_rows(at, schema.sources)))
    assert crashes > 5
    assert found[0] == found[1]


def test_the_days_must_be_the_right_way_round(deployment: Any) -> None:
    with pytest.raises(IntakeError, match="last day 2025-03-01 is before the first day 2025-03-02"):
        backfill(deployment, 1, 0)


def test_a_run_tells_which_days_it_wrote_and_a_days_digest_is_its_own(make_deployment: Any, traffic_of: Any) -> None:
    at = make_deployment()
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0), traffic.feedback(DAY, text="x"), traffic.call(3 * DAY))
    assert last_read_day(at.registry, at.task, "gateway") is None
    intake(at)
    assert last_read_day(at.registry, at.task, "gateway") is not None
    assert written_days(at.registry, at.task) == ["2025-03-01", "2025-03-04"]
    assert rows_by_day(at.registry, at.task, ["2025-03-04"]) == {"2025-03-04": {"interactions": 1, "feedback": 0}}
    first, whole = content_digest(at.registry, at.task, ["2025-03-01"]), content_digest(at.registry, at.task)
    traffic.write(traffic.call(3 * DAY + 1))
    intake(at)
    assert content_digest(at.registry, at.task, ["2025-03-01"]) == first
    assert content_digest(at.registry, at.task) != whole
