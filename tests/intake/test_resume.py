"""A second run over the same input reads nothing, whatever it lies in; what grew is read on, what changed again."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
import zstandard

from flywheel.config import parse_columns
from flywheel.intake import import_path, run_intake, unread_bytes
from flywheel.intake import reading as reading_module
from flywheel.intake.anew import import_again
from flywheel.intake.inflate import DAMAGED, ENDS_EARLY
from flywheel.intake.json_values import NOT_CLOSED
from flywheel.intake.parquet_rows import NOT_WHOLE
from flywheel.intake.preview import examine
from flywheel.intake.run import import_source
from flywheel.store.registry import schema
from flywheel.store.segments import query

Rows = Sequence[dict[str, Any]]

AGAIN = "file replaced or truncated: read again from its start"


def calls(*numbers: int) -> list[dict[str, Any]]:
    return [
        {"request": {"messages": [{"role": "user", "content": f"q{n}"}]}, "response": answer(n), "ts": 1764500000 + n}
        for n in numbers
    ]


def answer(n: int) -> dict[str, Any]:
    return {"id": f"c{n}", "choices": [{"index": 0, "message": {"role": "assistant", "content": f"a{n}"}}]}


def lines(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def write_csv(path: Path, rows: Rows) -> None:
    cells = [(row["response"]["id"], row["request"]["messages"][0]["content"], "ok", str(row["ts"])) for row in rows]
    path.write_text("id,q,a,t\n" + "".join(",".join(row) + "\n" for row in cells))


def write_parquet(path: Path, rows: Rows) -> None:
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


WRITE: dict[str, Callable[[Path, Rows], object]] = {
    "log.jsonl": lambda path, rows: path.write_bytes(lines(rows)),
    "log.json": lambda path, rows: path.write_text(json.dumps(rows, indent=1)),
    "log.csv": write_csv,
    "log.parquet": write_parquet,
    "log.jsonl.gz": lambda path, rows: path.write_bytes(gzip.compress(lines(rows))),
    "log.jsonl.zst": lambda path, rows: path.write_bytes(zstandard.compress(lines(rows))),
    "log.json.gz": lambda path, rows: path.write_bytes(gzip.compress(json.dumps(rows).encode())),
}


class Log:
    """A configured log in a deployment."""

    def __init__(self, deployment: Any, path: Path) -> None:
        self.at, self.path = deployment, path

    def intake(self) -> tuple[int, int, int, dict[str, int]]:
        """Kept, duplicate, quarantined, reasons of one run."""
        found = run_intake(self.at.config, self.at.home, self.at.registry, self.at.task).sources[-1]
        found.check()
        return found.kept, found.duplicate, found.quarantined, found.reasons

    def unread(self) -> int:
        return unread_bytes(self.at.config, self.at.home, self.at.registry, self.at.task)

    def settle(self) -> None:
        """Make the file look as if nobody had touched it for an hour."""
        old = self.path.stat().st_mtime - 3600
        os.utime(self.path, (old, old))


@pytest.fixture
def log(make_deployment: Callable[..., Any], tmp_path: Path) -> Callable[[str], Log]:
    def make(name: str) -> Log:
        path = tmp_path / name
        entry: Any = str(path)
        if name.endswith(".csv"):
            entry = {"path": str(path), "columns": {"id": "id", "prompt": "q", "completion": "a", "time": "t"}}
        return Log(make_deployment(task={"logs": [entry]}), path)

    return make


@pytest.mark.parametrize("name", WRITE)
def test_a_second_run_reads_nothing_and_stores_nothing(log: Callable[[str], Log], name: str) -> None:
    it = log(name)
    WRITE[name](it.path, calls(1, 2, 3))
    assert it.unread() > 0
    assert it.intake() == (3, 0, 0, {})
    with it.at.registry.read() as tx:
        before = tx.rows(sa.select(schema.sources)), tx.rows(sa.select(schema.intake_counts))
    assert it.unread() == 0
    assert it.intake() == (0, 0, 0, {})
    with it.at.registry.read() as tx:
        assert (tx.rows(sa.select(schema.sources)), tx.rows(sa.select(schema.intake_counts))) == before


@pytest.mark.parametrize("name", WRITE)
def test_a_file_that_was_written_anew_with_more_is_taken_in_once(log: Callable[[str], Log], name: str) -> None:
    it = log(name)
    WRITE[name](it.path, calls(1, 2, 3))
    it.intake()
    WRITE[name](it.path, calls(1, 2, 3, 4, 5))
    assert it.unread() > 0
    kept, duplicate, quarantined, reasons = it.intake()
    assert (kept, quarantined) == (2, 0)
    in_place = name in ("log.jsonl", "log.json", "log.csv")  # what was read is still there byte for byte
    assert (duplicate, reasons) == ((0, {}) if in_place else (3, {AGAIN: 1}))
    assert (it.unread(), it.intake()) == (0, (0, 0, 0, {}))


@pytest.mark.parametrize("name", WRITE)
def test_a_replaced_file_is_read_again(log: Callable[[str], Log], name: str) -> None:
    it = log(name)
    WRITE[name](it.path, calls(1, 2, 3))
    it.intake()
    WRITE[name](it.path, calls(7, 2, 8))
    assert it.intake() == (2, 1, 0, {AGAIN: 1})


@pytest.mark.parametrize("name", WRITE)
def test_a_reading_that_broke_off_goes_on_where_its_last_chunk_ended(
    log: Callable[[str], Log], name: str, monkeypatch: pytest.MonkeyPatch, dies_at: Callable[..., bool]
) -> None:
    it = log(name)
    monkeypatch.setattr(reading_module, "CHUNK_RECORDS", 2)
    WRITE[name](it.path, calls(*range(9)))
    instant = 0
    while it.unread() and dies_at(instant, it.intake):
        instant += 1
    assert instant > 3
    with it.at.registry.read() as tx:
        counts = tx.rows(sa.select(schema.intake_counts))
    assert sum(row["kept"] for row in counts) == 9
    assert sum(row["duplicate"] for row in counts) == 0
    assert (it.unread(), it.intake()) == (0, (0, 0, 0, {}))


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_what_is_appended_to_a_compressed_file_is_read_on(
    log: Callable[[str], Log], pack: Callable[[bytes], bytes]
) -> None:
    it = log("log.jsonl.packed")
    it.path.write_bytes(pack(lines(calls(1, 2))))
    assert it.intake() == (2, 0, 0, {})
    with it.path.open("ab") as handle:
        handle.write(pack(lines(calls(3))))
    assert 0 < it.unread() < it.path.stat().st_size
    assert it.intake() == (1, 0, 0, {})


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_an_archive_that_was_cut_is_read_on_when_it_is_whole(
    log: Callable[[str], Log], pack: Callable[[bytes], bytes]
) -> None:
    it = log("log.packed")
    rows = calls(*range(300))
    whole = pack(lines([row | {"pad": os.urandom(1000).hex()} for row in rows]))
    it.path.write_bytes(whole[: len(whole) // 2])
    it.settle()
    kept, duplicate, quarantined, reasons = it.intake()
    assert (duplicate, quarantined, reasons) == (0, 0, {ENDS_EARLY: 1})
    assert 0 < kept < 300
    assert (it.unread(), it.intake()) == (0, (0, 0, 0, {}))
    it.path.write_bytes(whole)
    assert it.intake() == (300 - kept, 0, 0, {})


def test_an_array_that_is_still_written_is_read_on_and_its_last_element_waits(log: Callable[[str], Log]) -> None:
    it = log("log.json")
    one, two, three = (json.dumps(row) for row in calls(1, 2, 3))
    it.path.write_text(f"[\n{one},\n{two[:40]}")
    assert it.intake() == (1, 0, 0, {NOT_CLOSED: 1})
    assert it.intake() == (0, 0, 0, {})
    it.path.write_text(f"[\n{one},\n{two},\n{three}")
    assert it.intake() == (2, 0, 0, {NOT_CLOSED: 1})
    it.path.write_text(f"[\n{one},\n{two},\n{three}\n]\n")
    assert it.intake() == (0, 0, 0, {})
    assert it.unread() == 0


def test_an_array_that_never_closes_gives_up_its_last_element_once_it_has_settled(log: Callable[[str], Log]) -> None:
    it = log("log.json")
    one, two = (json.dumps(row) for row in calls(1, 2))
    it.path.write_text(f"[{one}, {two[:-5]}")
    it.settle()
    assert it.intake() == (1, 0, 1, {"torn last line": 1, NOT_CLOSED: 1})
    assert it.intake() == (0, 0, 0, {})


def test_a_parquet_file_that_is_still_written_waits_until_it_is_whole(log: Callable[[str], Log]) -> None:
    it = log("log.parquet")
    write_parquet(it.path, calls(1, 2))
    whole = it.path.read_bytes()
    it.path.write_bytes(whole[:-20])
    assert it.intake() == (0, 0, 0, {NOT_WHOLE: 1})
    assert (it.unread(), it.intake()) == (0, (0, 0, 0, {}))
    it.path.write_bytes(whole)
    kept, _, quarantined, _ = it.intake()
    assert (kept, quarantined) == (2, 0)


def test_a_csv_row_that_is_still_written_waits_for_its_end(log: Callable[[str], Log]) -> None:
    it = log("log.csv")
    it.path.write_text("id,q,a,t\nc1,hello,hi,1764500000\nc2,how,fine,17645")
    assert it.intake() == (1, 0, 0, {})
    assert it.intake() == (0, 0, 0, {})
    it.path.write_text("id,q,a,t\nc1,hello,hi,1764500000\nc2,how,fine,1764500001\n")
    assert it.intake() == (1, 0, 0, {})


def test_resume_points_of_version_0_1_0_are_understood(log: Callable[[str], Log]) -> None:
    it = log("log.jsonl")
    it.path.write_bytes(lines(calls(1, 2)))
    it.intake()
    table = schema.sources
    with it.at.registry.write() as tx:
        row = tx.row(sa.select(table).where(table.c.source == str(it.path)))
        assert row is not None
        for point in row["position"]["files"].values():
            del point["left"]
        tx.execute(sa.update(table).where(table.c.source == str(it.path)).values(position=row["position"]))
    assert (it.unread(), it.intake()) == (0, (0, 0, 0, {}))
    with it.path.open("ab") as handle:
        handle.write(lines(calls(3)))
    assert it.intake() == (1, 0, 0, {})


def test_an_import_reports_a_cut_archive_and_keeps_its_beginning(deployment: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(lines(calls(*range(50))))[:-4])
    found = import_path(deployment.config, deployment.home, deployment.registry, deployment.task, path)
    assert (found.kept, found.quarantined, found.reasons) == (50, 0, {ENDS_EARLY: 1})


def grown(deployment: Any, path: Path, *contents: bytes, **options: Any) -> list[tuple[int, int, int, int]]:
    """Kept, duplicate, quarantined and skipped of an import after each state of a file."""
    found = []
    for content in contents:
        path.write_bytes(content)
        report = import_path(deployment.config, deployment.home, deployment.registry, deployment.task, path, **options)
        report.check()
        found.append((report.kept, report.duplicate, report.quarantined, report.skipped))
    return found


def answers(deployment: Any) -> set[str]:
    sql = "SELECT response FROM rows"
    rows = query(deployment.home, deployment.registry, "interactions", deployment.task, sql).to_pylist()
    return {json.loads(row["response"])["message"]["content"] for row in rows}


def test_a_torn_csv_row_that_is_written_on_is_read_from_its_start(deployment: Any, tmp_path: Path) -> None:
    torn = b'q,a\nx1,y1\n"half'
    whole = torn + b' done",y2\nx3,y3\n'
    columns = parse_columns("prompt=q,completion=a")
    told = grown(deployment, tmp_path / "t.csv", torn, torn, whole, whole, columns=columns)
    assert told == [(1, 0, 1, 0), (0, 0, 0, 0), (2, 0, 0, 0), (0, 0, 0, 0)]
    sql = "SELECT request FROM rows"
    rows = query(deployment.home, deployment.registry, "interactions", deployment.task, sql).to_pylist()
    assert sum("half done" in row["request"] for row in rows) == 1


@pytest.mark.parametrize("chunk", [1, 20_000])
def test_a_torn_line_or_element_that_is_written_on_is_read_from_its_start(
    deployment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(reading_module, "CHUNK_RECORDS", chunk)
    one, two, three = (json.dumps(row).encode() for row in calls(1, 2, 3))
    cut = two[:40]
    log = one + b"\n" + cut, one + b"\n" + two + b"\n" + three + b"\n"
    array = b"[\n " + one + b",\n " + cut, b"[\n " + one + b",\n " + two + b",\n " + three + b"\n]"
    for name, (torn, whole) in {"a.jsonl": log, "a.json": array}.items():
        told = grown(deployment, tmp_path / name, torn, torn, whole)
        assert [row[2] for row in told] == [1, 0, 0], name
        assert sum(row[0] + row[1] for row in told) == 3, name
    assert answers(deployment) == {"a1", "a2", "a3"}


def test_a_file_that_is_torn_at_its_first_record_or_deep_in_gzip_is_read_from_there(
    deployment: Any, tmp_path: Path
) -> None:
    (row,) = (json.dumps(row).encode() for row in calls(1))
    told = grown(deployment, tmp_path / "a.jsonl", b"", row[:30], row[:30], row[:50], row + b"\n", fmt="openai_chat")
    assert told == [(0, 0, 0, 0), (0, 0, 1, 0), (0, 0, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0)]
    first = gzip.compress(lines(calls(1)) + lines(calls(2))[:40])
    told = grown(deployment, tmp_path / "b.gz", first, first, first + gzip.compress(lines(calls(2))[40:]))
    assert told == [(0, 1, 1, 0), (0, 0, 0, 0), (1, 0, 0, 0)]


def test_a_file_that_was_only_touched_does_not_count_its_torn_end_again(log: Callable[[str], Log]) -> None:
    it = log("log.jsonl")
    it.path.write_bytes(lines(calls(1)) + b'{"torn')
    assert it.intake() == (1, 0, 0, {})
    it.settle()
    assert it.intake() == (0, 0, 1, {"torn last line": 1})
    assert (it.unread(), it.intake()) == (0, (0, 0, 0, {}))
    os.utime(it.path)
    assert (it.unread() > 0, it.intake(), it.unread()) == (True, (0, 0, 0, {}), 0)
    it.settle()
    assert (it.intake(), it.unread()) == ((0, 0, 0, {}), 0)
    it.path.write_bytes(lines(calls(1, 2)))
    assert it.intake() == (1, 0, 0, {})


def test_a_file_that_cannot_be_read_to_its_end_says_so_at_every_import(deployment: Any, tmp_path: Path) -> None:
    raw = bytearray(gzip.compress(lines(calls(*range(400)))))
    raw[len(raw) // 2] ^= 0xFF
    whole = tmp_path / "good.jsonl"
    whole.write_bytes(lines(calls(1)))
    (tmp_path / "bad.json.gz").write_bytes(raw)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    at = deployment.config, deployment.home, deployment.registry, deployment.task
    for _ in range(2):
        found = import_path(*at, tmp_path)
        assert sorted(found.faults) == sorted([DAMAGED, NOT_WHOLE])
        assert (found.reasons[DAMAGED], found.reasons[NOT_WHOLE]) == (1, 1)
        assert examine(*at, import_source(deployment.config, tmp_path)).faults
    assert import_path(*at, whole).faults == []


def test_reading_a_torn_file_anew_leaves_the_resume_point_before_its_torn_end(deployment: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    at = deployment.config, deployment.home, deployment.registry, deployment.task
    whole = lines(calls(1, 2))
    assert grown(deployment, path, whole[:-30]) == [(1, 0, 1, 0)]
    _, found = import_again(*at, path)
    assert (found.duplicate, found.quarantined, found.skipped) == (1, 0, 1)
    assert grown(deployment, path, whole[:-30], whole) == [(0, 0, 0, 0), (1, 0, 0, 0)]
