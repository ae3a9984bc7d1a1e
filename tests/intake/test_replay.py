"""Replaying quarantine: what can be read now comes in, what cannot stays, and the counts still add up."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.errors import IntakeError
from flywheel.intake import SourceReport, import_path, intake_digest, replay, run_intake
from flywheel.intake.history import history, totals
from flywheel.intake.quarantine import places
from flywheel.store.registry import schema
from flywheel.store.segments import read_rows


def intake(at: Any) -> Any:
    return run_intake(at.config, at.home, at.registry, at.task)


def again(at: Any, **options: Any) -> Any:
    return replay(at.config, at.home, at.registry, at.task, **options)


def bad(at: Any) -> list[tuple[str, str]]:
    rows = read_rows(at.home, at.registry, "quarantine", at.task, "source, source_offset")
    return [(row["raw"][:20], row["reason"]) for row in rows]


def counts(report: SourceReport) -> tuple[int, ...]:
    return report.read, report.kept, report.duplicate, report.quarantined, report.skipped


def in_quarantine_by_the_counts(at: Any) -> int:
    for row in history(at.registry, at.task):
        assert row["read"] == row["kept"] + row["duplicate"] + row["quarantined"] + row["skipped"]
    return totals(at.registry, at.task).in_quarantine


@pytest.fixture
def mended(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``mended()``: from now on the gateway's format also reads version 2."""
    from flywheel.intake.formats import FORMATS, LogFormat

    was = FORMATS["gateway"]

    def mend() -> None:
        new = LogFormat("gateway", was.matches, lambda record, context: was.parse(record | {"v": 1}, context), was.keys)
        monkeypatch.setitem(FORMATS, "gateway", new)

    return mend


def test_what_a_mended_format_reads_is_taken_in_and_the_rest_stays(deployment: Any, traffic: Any, mended: Any) -> None:
    at = deployment
    traffic.write(
        traffic.call(1), traffic.call(2, v=2), b"broken\n", traffic.call(3, v=2), traffic.call(1, "other", v=2)
    )
    intake(at)
    assert len(bad(at)) == 4 == in_quarantine_by_the_counts(at)
    mended()
    (report,) = again(at).sources
    assert (report.source, counts(report)) == ("gateway", (4, 2, 0, 2, 0))
    assert [row["interaction_id"] for row in read_rows(at.home, at.registry, "interactions", at.task, "ts")] == [
        traffic.call_id(number) for number in (1, 2, 3)
    ]
    left = bad(at)
    assert left[0] == ("broken", "not JSON")
    assert [reason for _, reason in left] == ["not JSON", "same id as another record, other content"]
    assert in_quarantine_by_the_counts(at) == 2
    before = intake_digest(at.home, at.registry, at.task)
    assert counts(again(at).sources[0]) == (2, 0, 0, 2, 0), "again changes nothing"
    assert (bad(at), intake_digest(at.home, at.registry, at.task)) == (left, before)
    assert in_quarantine_by_the_counts(at) == 2


def test_a_replay_is_as_if_the_format_had_never_failed(make_deployment: Any, traffic_of: Any, mended: Any) -> None:
    first, second = make_deployment("first"), make_deployment("second")
    for at in (first, second):
        (at.home.root / "secret.key").write_bytes(b"s" * 32)
        traffic = traffic_of(at.home)
        talk = [traffic.call(n, conversation_id="talk", v=1 + n % 2) for n in range(6)]
        traffic.write(*talk, traffic.feedback(1, text="sales"), traffic.feedback(3, v=2, text="sales"))
    intake(first)
    mended()
    again(first)
    intake(second)
    assert intake_digest(first.home, first.registry, first.task) == intake_digest(
        second.home, second.registry, second.task
    )


def test_only_the_named_source_and_reason_are_replayed(deployment: Any, traffic: Any, mended: Any) -> None:
    at = deployment
    traffic.write(traffic.call(1, v=2), traffic.call(2, id=None), b"broken\n")
    intake(at)
    mended()
    assert again(at, source="elsewhere").sources == []
    assert counts(again(at, reason="no id").sources[0]) == (1, 0, 0, 1, 0)
    assert counts(again(at, source="gateway", reason="unknown log version").sources[0]) == (1, 1, 0, 0, 0)
    assert [reason for _, reason in bad(at)] == ["no id", "not JSON"]


def test_another_format_can_be_named_and_what_it_would_skip_stays(deployment: Any, tmp_path: Path) -> None:
    at = deployment
    call = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
    (tmp_path / "own.jsonl").write_text(f"{json.dumps(call)}\n" + '{"table": "x", "trace": 1}\n')
    import_path(at.config, at.home, at.registry, at.task, tmp_path / "own.jsonl", fmt="tensorzero")
    before = bad(at)
    assert len(before) == 2
    again(at, fmt="langfuse")
    assert [raw for raw, _ in bad(at)] == [raw for raw, _ in before], "it has no use for them"
    report = again(at, fmt="openai_chat").sources[0]
    assert (report.kept, report.quarantined) == (1, 1)
    with pytest.raises(IntakeError, match="unknown log format"):
        again(at, fmt="langfusee")


def test_a_record_that_is_gone_or_changed_is_said_to_be_and_left(deployment: Any, traffic: Any, mended: Any) -> None:
    at = deployment
    path = traffic.write(traffic.call(1, v=2), traffic.call(2, v=2))
    other = traffic.write(traffic.call(3, v=2), boot="20250302T120000000000Z-00000000")
    intake(at)
    mended()
    data = path.read_bytes()
    path.write_bytes(data.replace(traffic.call_id(2).encode(), traffic.call_id(4).encode()))
    other.unlink()
    report = again(at)
    assert counts(report.sources[0]) == (1, 1, 0, 0, 0)
    assert report.why_left() == {"its file has changed there": 1, "its file is gone, or cannot be read": 1}
    assert {(row["source"], row["source_offset"]) for row in report.left} == set(places(at.home, at.registry, at.task))
    assert in_quarantine_by_the_counts(at) == 2 == len(bad(at))


def test_a_torn_line_that_was_finished_since_is_read_whole(deployment: Any, tmp_path: Path, traffic: Any) -> None:
    at = deployment
    whole = json.dumps(traffic.call(1, text="äöü")).encode()
    path = tmp_path / "own.jsonl"
    path.write_bytes(whole[:-9])
    import_path(at.config, at.home, at.registry, at.task, path, fmt="gateway")
    assert [reason for _, reason in bad(at)] == ["torn last line"]
    path.write_bytes(whole + b"\n")
    assert counts(again(at, fmt="gateway").sources[0]) == (1, 1, 0, 0, 0)
    assert bad(at) == []


@pytest.mark.parametrize("packed", [False, True], ids=["array", "array in gzip"])
def test_records_of_other_containers_are_found_again(deployment: Any, tmp_path: Path, packed: bool) -> None:
    at = deployment
    calls = [
        {"messages": [{"role": "user", "content": f"hi {n}"}, {"role": "assistant", "content": "hello"}]}
        for n in range(3)
    ]
    text = json.dumps([calls[0], {"x": 1}, calls[1], calls[2]], indent=1).encode()
    path = tmp_path / ("own.json.gz" if packed else "own.json")
    path.write_bytes(gzip.compress(text) if packed else text)
    import_path(at.config, at.home, at.registry, at.task, path, fmt="tensorzero")
    assert len(bad(at)) == 4
    report = again(at, fmt="openai_chat")
    assert (counts(report.sources[0]), report.left) == ((4, 3, 0, 1, 0), [])


def test_a_replay_killed_at_any_instant_and_repeated_ends_as_an_undisturbed_one(
    make_deployment: Any, traffic_of: Any, mended: Any, dies_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["flywheel.intake.replay"], "CHUNK_RECORDS", 2)
    found = []
    deployments = [make_deployment(name) for name in ("calm", "stormy")]
    for at in deployments:
        (at.home.root / "secret.key").write_bytes(b"s" * 32)
        traffic = traffic_of(at.home)
        traffic.write(*(traffic.call(n, v=1 + n % 2, conversation_id="talk") for n in range(9)), b"broken\n")
        intake(at)
    mended()
    crashes = 0
    for at in deployments:
        while at is deployments[1] and dies_at(crashes % 19, lambda at=at: again(at)):
            crashes += 1
            assert in_quarantine_by_the_counts(at) == len(bad(at))
        again(at)
        with at.registry.read() as tx:
            kept = tx.scalar(sa.select(sa.func.sum(schema.intake_counts.c.kept)))
        found.append((intake_digest(at.home, at.registry, at.task), bad(at), kept, in_quarantine_by_the_counts(at)))
    assert crashes > 5
    assert found[0] == found[1]
