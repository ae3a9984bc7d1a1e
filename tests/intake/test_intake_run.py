"""Rule 1: every record ends in exactly one place, the counts say so, and reading again changes nothing."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.errors import IntakeError
from flywheel.intake import IntakeReport, SourceReport, import_path, reading, run_intake
from flywheel.store.registry import schema
from flywheel.store.segments import read_rows


def intake(deployment: Any) -> IntakeReport:
    return run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)


def rows(deployment: Any, table: str, order: str) -> list[dict[str, Any]]:
    return read_rows(deployment.home, deployment.registry, table, deployment.task, order)


def counts(report: SourceReport) -> tuple[int, ...]:
    return report.read, report.kept, report.duplicate, report.quarantined, report.skipped


def test_every_record_ends_in_exactly_one_place(deployment: Any, traffic: Any) -> None:
    path = traffic.write(
        traffic.call(1),
        traffic.call(1),
        b"not json\n",
        traffic.feedback(1, text="sales"),
        traffic.call(2, task="another_task"),
        b"\n",
        traffic.call(3),
    )
    (report,) = intake(deployment).sources
    assert counts(report) == (7, 3, 1, 1, 2)
    assert report.reasons == {"not JSON": 1, "other task": 1, "blank line": 1}
    assert [row["interaction_id"] for row in rows(deployment, "interactions", "ts")] == [
        traffic.call_id(1),
        traffic.call_id(3),
    ]
    (bad,) = rows(deployment, "quarantine", "source_offset")
    assert path.read_bytes()[bad["source_offset"] :].startswith(b"not json\n")
    assert (bad["raw"], bad["reason"], bad["source"]) == ("not json", "not JSON", f"gateway/{path.name}")


def test_counts_that_do_not_add_up_are_a_loud_error() -> None:
    report = SourceReport("gateway", read=2, kept=1)
    with pytest.raises(IntakeError, match="2 records read but 1 accounted for"):
        report.check()


def test_the_counts_of_every_chunk_are_stored_with_the_run(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.call(1), b"x\n")
    run_intake(deployment.config, deployment.home, deployment.registry, deployment.task, run="r1")
    with deployment.registry.read() as tx:
        (stored,) = tx.rows(sa.select(schema.intake_counts))
    assert (stored["run"], stored["read"], stored["kept"], stored["quarantined"]) == ("r1", 2, 1, 1)
    assert stored["reasons"] == {"not JSON": 1}


def test_a_second_run_reads_nothing_and_a_longer_file_is_read_on(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.call(1))
    intake(deployment)
    assert counts(intake(deployment).sources[0]) == (0, 0, 0, 0, 0)
    traffic.write(traffic.call(2))
    assert counts(intake(deployment).sources[0]) == (1, 1, 0, 0, 0)


def test_a_run_with_nothing_new_writes_nothing(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.call(1))
    intake(deployment)
    with deployment.registry.read() as tx:
        before = tx.rows(sa.select(schema.sources))
    intake(deployment)
    with deployment.registry.read() as tx:
        assert tx.rows(sa.select(schema.sources)) == before


def test_an_unterminated_last_line_waits_while_its_writer_lives(deployment: Any, traffic: Any) -> None:
    path = traffic.write(traffic.call(1), b'{"v":1,"ki')
    with path.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert counts(intake(deployment).sources[0]) == (1, 1, 0, 0, 0)
        assert counts(intake(deployment).sources[0]) == (0, 0, 0, 0, 0)
        writer.write(b'nd":"x"}\n')
    assert intake(deployment).sources[0].reasons == {"not a record of the format gateway": 1}


def test_an_unterminated_last_line_of_a_closed_log_is_torn_even_if_it_is_whole_json(
    deployment: Any, traffic: Any
) -> None:
    path = traffic.write(traffic.call(1), b"{}")
    report = intake(deployment).sources[0]
    assert (report.quarantined, report.reasons) == (1, {"torn last line": 1})
    assert rows(deployment, "quarantine", "ts")[0]["source_offset"] == path.stat().st_size - 2
    assert intake(deployment).sources[0].read == 0


def test_a_line_that_is_far_too_long_is_passed_over_and_its_neighbours_are_kept(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.call(1), b'{"v":1,"pad":"' + b"x" * (33 * 2**20) + b'"}\n', traffic.call(2))
    report = intake(deployment).sources[0]
    assert (counts(report), report.reasons) == ((3, 2, 0, 1, 0), {"line too long": 1})
    assert len(rows(deployment, "quarantine", "ts")[0]["raw"]) <= 4096


def test_a_replaced_file_is_read_again_and_what_it_repeats_is_a_duplicate(deployment: Any, traffic: Any) -> None:
    path = traffic.write(traffic.call(1), traffic.call(2))
    intake(deployment)
    path.unlink()
    traffic.write(traffic.call(3), traffic.call(2), traffic.call(4))
    report = intake(deployment).sources[0]
    assert counts(report) == (3, 2, 1, 0, 0)
    assert report.reasons == {"file replaced or truncated: read again from its start": 1}


def test_a_truncated_file_that_grew_past_its_old_length_is_read_from_its_start(deployment: Any, traffic: Any) -> None:
    path = traffic.write(traffic.call(1))
    intake(deployment)
    inode = path.stat().st_ino
    with path.open("r+b") as handle:
        handle.truncate(0)
    traffic.write(traffic.call(2, text="a much longer message than before " * 20), traffic.call(3))
    assert path.stat().st_ino == inode
    assert counts(intake(deployment).sources[0]) == (2, 2, 0, 0, 0)


def test_a_copied_file_goes_on_where_it_was(deployment: Any, traffic: Any) -> None:
    path = traffic.write(traffic.call(1))
    intake(deployment)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    assert counts(intake(deployment).sources[0]) == (0, 0, 0, 0, 0)


def test_one_id_with_two_contents_keeps_the_first_and_quarantines_the_other(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.call(1, "billing"), traffic.call(1, "sales"))
    report = intake(deployment).sources[0]
    assert report.reasons == {"same id as another record, other content": 1}
    (row,) = rows(deployment, "quarantine", "source_offset")
    assert json.loads(row["raw"]) == traffic.call(1, "sales")  # whole, so that a replay recognises it
    traffic.write(traffic.call(1, "sales"), traffic.call(1, "billing"))
    assert counts(intake(deployment).sources[0]) == (2, 0, 1, 1, 0)


def test_several_choices_are_one_record_and_several_rows(deployment: Any, traffic: Any) -> None:
    answers = ["billing", "sales", "refunds"]
    choices = [
        {"index": index, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
        for index, answer in enumerate(answers)
    ]
    traffic.write(traffic.call(1, choices=choices))
    assert counts(intake(deployment).sources[0]) == (1, 1, 0, 0, 0)
    found = rows(deployment, "interactions", "choice_index")
    own = traffic.call_id(1)
    assert [row["interaction_id"] for row in found] == [own, f"{own}#1", f"{own}#2"]
    assert len({row["audit"] for row in found}) == 1 and {row["conversation_id"] for row in found} == {own}
    traffic.write(traffic.call(1, choices=choices))
    assert counts(intake(deployment).sources[0]) == (1, 0, 1, 0, 0)


@pytest.mark.parametrize("chunk", [1, 2, 20_000])
def test_late_records_are_kept_and_counted_also_across_chunks_and_runs(
    deployment: Any, traffic: Any, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(reading, "CHUNK_RECORDS", chunk)
    hour = 3600
    traffic.write(traffic.call(2 * hour), traffic.call(1), traffic.call(2 * hour - 60))
    report = intake(deployment).sources[0]
    assert (report.kept, report.late) == (3, 1)
    traffic.write(traffic.call(2))
    report = intake(deployment).sources[0]
    assert (report.kept, report.late) == (1, 1)


def test_an_impossible_time_is_marked_and_makes_nothing_late(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.call(1, ts="2150-01-01T00:00:00Z"), traffic.call(2), traffic.call(3, ts=None))
    report = intake(deployment).sources[0]
    assert (report.kept, report.late) == (3, 0)
    assert report.reasons == {"time implausible": 1, "time missing": 1}
    qualities = {row["interaction_id"]: row["ts_quality"] for row in rows(deployment, "interactions", "ts")}
    assert [qualities[traffic.call_id(number)] for number in (1, 2, 3)] == ["implausible", "ok", "missing"]


def test_the_raw_user_id_reaches_no_table(deployment: Any, traffic: Any) -> None:
    traffic.write(
        traffic.call(1, user="mallory@example.org"), traffic.feedback(1, text="x", author="mallory@example.org")
    )
    intake(deployment)
    (call,) = rows(deployment, "interactions", "ts")
    (opinion,) = rows(deployment, "feedback", "ts")
    assert call["user_key"] == opinion["author_key"] == deployment.home.user_key("mallory@example.org")
    assert "mallory" not in str(call) + str(opinion)


def test_the_audit_draw_is_the_homes_and_whole_conversations_fall_on_one_side(make_deployment, traffic_of) -> None:
    deployment = make_deployment(task={"labels": {"audit_share": 0.5}})
    traffic = traffic_of(deployment.home)
    traffic.write(*(traffic.call(n, conversation_id=f"talk-{n // 3}") for n in range(60)))
    intake(deployment)
    found = rows(deployment, "interactions", "ts")
    for row in found:
        assert row["audit"] == deployment.home.audited(row["conversation_id"], 0.5)
        assert row["audit_probability"] == 0.5
    assert {row["audit"] for row in found} == {True, False}


def test_a_failed_call_is_kept_without_an_answer(deployment: Any, traffic: Any) -> None:
    traffic.write(traffic.call(1, status="error", choices=[]))
    intake(deployment)
    (row,) = rows(deployment, "interactions", "ts")
    assert row["status"] == "error"


def test_a_foreign_log_is_read_besides_the_gateways(make_deployment, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / "deep").mkdir(parents=True)
    line = b'{"messages":[{"role":"user","content":"hi"}],"response":"billing","id":"%s"}\n'
    (logs / "a.jsonl").write_bytes(line % b"c1")
    (logs / "deep" / "b.ndjson").write_bytes(line % b"c2" + (line % b"c3").rstrip())
    (logs / "notes.txt").write_bytes(b"not a log")
    deployment = make_deployment(task={"logs": [str(logs), str(tmp_path / "not-there-yet")]})
    gateway, folder, missing = intake(deployment).sources
    assert (gateway.read, folder.kept, missing.read) == (0, 3, 0)
    assert {row["interaction_id"] for row in rows(deployment, "interactions", "ts")} == {"c1", "c2", "c3"}


def test_half_a_line_of_a_growing_foreign_log_waits_until_the_file_has_settled(make_deployment, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_bytes(b'{"messages":[{"role":"user","con')
    deployment = make_deployment(task={"logs": str(log)})
    assert intake(deployment).sources[1].read == 0
    os.utime(log, (1e9, 1e9))
    assert intake(deployment).sources[1].reasons == {"torn last line": 1}


def test_an_import_can_be_repeated_and_goes_on_where_the_file_grew(deployment: Any, tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    line = '{{"messages":[{{"role":"user","content":"{0}"}},{{"role":"assistant","content":"billing"}}]}}\n'
    path.write_text(line.format("a") + line.format("b") + line.format("a"))

    def run() -> tuple[int, ...]:
        return counts(import_path(deployment.config, deployment.home, deployment.registry, deployment.task, path))

    assert run() == (3, 2, 1, 0, 0)
    assert run() == (0, 0, 0, 0, 0)
    with path.open("a") as handle:
        handle.write(line.format("c"))
    assert run() == (1, 1, 0, 0, 0)
    path.rename(tmp_path / "renamed.jsonl")
    path = tmp_path / "renamed.jsonl"
    assert run() == (4, 0, 4, 0, 0)


@pytest.mark.parametrize(
    ("content", "fmt", "message"),
    [
        (None, "auto", "no such file"),
        (b'{"id":"t1","type":"SPAN"}\nplain text\n', "auto", "none of its first 2 records"),
        (b"{}\n", "csv", "unknown log format"),
    ],
)
def test_an_import_of_the_wrong_thing_is_refused_whole(
    deployment: Any, tmp_path: Path, content: bytes | None, fmt: str, message: str
) -> None:
    path = tmp_path / "file.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(IntakeError, match=message):
        import_path(deployment.config, deployment.home, deployment.registry, deployment.task, path, fmt=fmt)
    assert rows(deployment, "quarantine", "ts") == []


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = leaves | st.lists(leaves, max_size=2) | st.dictionaries(st.sampled_from(["role", "content", "id"]), leaves)


def _change(record: Any, data: st.DataObject) -> None:
    """Put an arbitrary value somewhere into a record."""
    while True:
        key = data.draw(st.sampled_from(sorted(record) if isinstance(record, dict) else range(len(record))))
        inner = record[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
            record = inner
            continue
        record[key] = data.draw(values)
        return


@settings(max_examples=12)
@given(data=st.data())
def test_no_record_however_odd_stops_intake_or_touches_its_neighbours(deployment: Any, traffic: Any, data) -> None:
    with deployment.registry.read() as tx:
        number = 100 * int(tx.scalar(sa.select(sa.func.count()).select_from(schema.intake_counts)))
    odd: list[dict[str, Any] | bytes] = [data.draw(st.binary(max_size=40)).replace(b"\n", b"") + b"\n"]
    for place in range(30):
        record = traffic.call(number + place) if place % 2 else traffic.feedback(number + place, "thumb", value=True)
        _change(record, data)
        odd.append(record)
    traffic.write(traffic.call(number + 50), *odd, traffic.call(number + 51))
    report = intake(deployment).sources[0]
    report.check()
    assert report.read == 33
    kept = {row["interaction_id"] for row in rows(deployment, "interactions", "ts")}
    assert {traffic.call_id(number + 50), traffic.call_id(number + 51)} <= kept
