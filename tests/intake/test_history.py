"""What the registry tells of earlier runs: counts per run and source, as one table."""

from __future__ import annotations

from typing import Any

import pytest

import flywheel.intake.reading as reading_module
from flywheel.intake import SourceReport, import_path, replay, run_intake
from flywheel.intake.history import history, totals


def test_the_chunks_of_a_run_are_one_row_per_source_newest_first(
    deployment: Any, traffic: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_module, "CHUNK_RECORDS", 2)
    at = deployment
    path = traffic.write(*(traffic.call(number) for number in range(5)), b"broken\n", b"broken\n")
    run_intake(at.config, at.home, at.registry, at.task, run="r1")
    (tmp_path / "own.jsonl").write_bytes(path.read_bytes())
    import_path(at.config, at.home, at.registry, at.task, tmp_path / "own.jsonl", run="import 1")
    newest, first = history(at.registry, at.task)
    assert (newest["run"], newest["source"], newest["duplicate"]) == ("import 1", str(tmp_path / "own.jsonl"), 5)
    assert (first["run"], first["source"], first["read"], first["kept"]) == ("r1", "gateway", 7, 5)
    assert (first["reasons"], first["quarantined"]) == ({"not JSON": 2}, 2)
    assert first["began"] <= first["ended"] <= newest["began"]
    assert [row["run"] for row in history(at.registry, at.task, limit=1)] == ["import 1"]
    assert [row["run"] for row in history(at.registry, at.task, source="gateway")] == ["r1"]


def test_the_totals_tell_what_lies_in_quarantine(deployment: Any, traffic: Any) -> None:
    at = deployment
    assert totals(at.registry, at.task).in_quarantine == 0
    traffic.write(traffic.call(1), b"broken\n", b"broken\n")
    run_intake(at.config, at.home, at.registry, at.task)
    replay(at.config, at.home, at.registry, at.task, run="replay by hand")
    found = totals(at.registry, at.task)
    assert (found.counts["read"], found.counts["quarantined"], found.replayed) == (5, 4, 2)
    assert found.in_quarantine == 2


def test_the_share_that_could_be_parsed_counts_no_blank_line_for_or_against() -> None:
    report = SourceReport("x", read=100, kept=95, quarantined=5)
    assert report.parsed_share() == 0.95
    report = SourceReport("x", read=200, kept=94, quarantined=6, skipped=100, reasons={"blank line": 100})
    assert report.parsed_share() == pytest.approx(0.94)
    assert SourceReport("x", read=3, skipped=3, reasons={"blank line": 3}).parsed_share() == 1
    skipped = SourceReport("x", read=100, skipped=96, quarantined=4, reasons={"other task": 96})
    assert skipped.parsed_share() == pytest.approx(0.96), "what a rule skips was parsed"
