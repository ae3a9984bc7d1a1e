"""What lies in quarantine, told by source and reason, and each record by its place."""

from __future__ import annotations

from typing import Any

from flywheel.intake import import_path, run_intake
from flywheel.intake.quarantine import entries, line_numbers, places, quarantined


def test_records_in_quarantine_are_counted_by_source_and_reason(deployment: Any, traffic: Any, tmp_path: Any) -> None:
    at = deployment
    traffic.write(traffic.call(1), b"broken\n", b"broken too\n", traffic.call(2, v=9))
    run_intake(at.config, at.home, at.registry, at.task)
    (tmp_path / "own.jsonl").write_text('{"v": 1, "kind": "feedback"}\nbroken\n')
    import_path(at.config, at.home, at.registry, at.task, tmp_path / "own.jsonl", fmt="gateway")
    found = quarantined(at.home, at.registry, at.task)
    own = str(tmp_path / "own.jsonl")
    assert [(row["source"], row["reason"], row["records"]) for row in found] == [
        ("gateway", "not JSON", 2),
        (own, "not JSON", 1),
        (own, "unknown feedback kind", 1),
        ("gateway", "unknown log version", 1),
    ]
    assert found[0]["first"] <= found[0]["last"]
    only = quarantined(at.home, at.registry, at.task, source=own, reason="not JSON")
    assert [(row["source"], row["records"]) for row in only] == [(own, 1)]


def test_a_record_in_quarantine_is_shown_with_its_exact_offset_and_line(deployment: Any, traffic: Any) -> None:
    at = deployment
    path = traffic.write(traffic.call(1), b"\n", "bröken\n".encode(), traffic.call(2), b"[1]\n")
    run_intake(at.config, at.home, at.registry, at.task)
    found = places(at.home, at.registry, at.task)
    rows = entries(at.home, at.registry, at.task, found)
    assert [(row["raw"], row["reason"]) for row in rows] == [("bröken", "not JSON"), ("[1]", "not a JSON object")]
    data = path.read_bytes()
    assert [data[offset:].split(b"\n")[0].decode() for _, offset in found] == ["bröken", "[1]"]
    assert list(line_numbers(at.home, found).values()) == [3, 5]
    only = places(at.home, at.registry, at.task, source="gateway", reason="not a JSON object")
    assert only == found[1:]


def test_there_is_no_line_number_where_the_file_is_gone_or_has_changed(deployment: Any, traffic: Any) -> None:
    at = deployment
    path = traffic.write(traffic.call(1), b"broken\n")
    run_intake(at.config, at.home, at.registry, at.task)
    found = places(at.home, at.registry, at.task)
    path.write_bytes(b"x" * (found[0][1] + 10))
    assert line_numbers(at.home, found) == {}
    path.unlink()
    assert line_numbers(at.home, found) == {}
