"""Compressed files, CSV and Parquet: the records as they are, each at its exact place, damage reported behind them."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.containers import Container, container_of, read_records
from flywheel.intake.csv_rows import NO_HEADER, NOT_CSV, RAGGED, TORN
from flywheel.intake.inflate import DAMAGED, ENDS_EARLY
from flywheel.intake.parquet_rows import NOT_WHOLE
from flywheel.intake.reader import FileFault, Line, read_lines

JSONL = b'{"a":1}\n{"a":2}\n{"a":3}\n'
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": lambda raw: zstandard.ZstdCompressor().compress(raw),
}


def read(path: Path, offset: int = 0, **options: Any) -> tuple[list[Line], str]:
    """The records, and what was wrong at the end."""
    found = []
    try:
        for line in read_records(path, container_of(path), offset, **options):
            found.append(line)
    except FileFault as fault:
        return found, str(fault)
    return found, ""


def write(folder: Path, content: bytes, name: str = "log") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "container"),
    [
        ("a.txt", JSONL, Container("lines")),
        ("a.jsonl", b"", Container("lines")),
        ("a.jsonl", b'\n[{"a":1}]', Container("array")),
        ("a.json", b'\xef\xbb\xbf [\n{"a":1}]', Container("array")),
        ("a.json", b'{\r\n "a":1}', Container("array")),
        ("a.jsonl", b'[1]\n{"a":1}\n', Container("lines")),
        ("a.csv", b"a,b\n1,2\n", Container("csv")),
        ("a.CSV", b"a,b\n1,2\n", Container("csv")),
        ("a.tsv", b"a\tb\n1\t2\n", Container("csv")),
        ("a.csv", b'{"a":1}\n', Container("lines")),
        ("a.csv", b"PAR1....", Container("parquet")),
        ("no_suffix", gzip.compress(JSONL), Container("lines", "gzip")),
        ("a.csv.gz", gzip.compress(b"a,b\n"), Container("csv", "gzip")),
        ("a.json.zst", PACK["zstd"](b'[{"a":1}]'), Container("array", "zstd")),
        ("skippable", b"\x50\x2a\x4d\x18\x02\x00\x00\x00hi" + PACK["zstd"](JSONL), Container("lines", "zstd")),
    ],
)
def test_a_file_is_what_its_first_bytes_say_and_only_csv_goes_by_its_name(
    tmp_path: Path, name: str, content: bytes, container: Container
) -> None:
    assert container_of(write(tmp_path, content, name)) == container


@pytest.mark.parametrize("packed", PACK)
@given(data=st.data())
def test_compressed_lines_are_those_of_the_plain_file_however_they_are_packed(
    tmp_path_factory: pytest.TempPathFactory, packed: str, data: st.DataObject
) -> None:
    raws = data.draw(
        st.lists(st.binary(max_size=20).map(lambda raw: b'{"' + raw.replace(b"\n", b"") + b"\n"), min_size=1)
    )
    plain = write(folder := tmp_path_factory.mktemp("packed"), b"".join(raws), "plain")
    whole, parts = plain.read_bytes(), []
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        parts.append(PACK[packed](whole[:cut]))
        whole = whole[cut:]
    lines = list(read_lines(plain))
    start = data.draw(st.integers(0, len(lines) - 1))
    assert read(write(folder, b"".join(parts), "packed"), lines[start].offset) == (lines[start:], "")


@pytest.mark.parametrize("packed", PACK)
def test_a_truncated_archive_gives_its_whole_lines_and_says_that_it_ends_early(tmp_path: Path, packed: str) -> None:
    raw = b"".join(b'{"n":%d}\n' % zlib.crc32(b"%d" % number) for number in range(5000))
    whole = PACK[packed](raw)
    path = write(tmp_path, whole, "whole")
    lines, _ = read(path)
    for share in (0.2, 0.9, 1):
        found, fault = read(write(tmp_path, whole[: int(len(whole) * share) - 1], "cut"))
        assert fault == ENDS_EARLY
        assert found == lines[: len(found)]
        assert all(line.terminated for line in found)
    assert read(path, lines[7].offset) == (lines[7:], "")


def test_a_gzip_stream_that_is_still_written_gives_what_was_flushed(tmp_path: Path) -> None:
    packer = zlib.compressobj(wbits=31)
    live = packer.compress(JSONL + b'{"a"') + packer.flush(zlib.Z_SYNC_FLUSH)
    found, fault = read(write(tmp_path, live))
    assert ([line.raw for line in found], fault) == (JSONL.splitlines(), ENDS_EARLY)


@pytest.mark.parametrize("packed", PACK)
def test_damage_in_an_archive_costs_what_lies_behind_it_only(tmp_path: Path, packed: str) -> None:
    first, second = PACK[packed](JSONL), bytearray(PACK[packed](JSONL))
    second[-8 if packed == "gzip" else 8] ^= 0xFF  # a checksum, or a block's header
    found, fault = read(write(tmp_path, first + bytes(second)))
    assert [line.raw for line in found[:3]] == JSONL.splitlines()
    assert fault == DAMAGED
    found, fault = read(write(tmp_path, first + b"no archive at all"))
    assert ([line.raw for line in found], fault) == (JSONL.splitlines(), DAMAGED)


def test_all_lines_before_the_damage_in_a_gzip_file_come_out(tmp_path: Path) -> None:
    raw = b"".join(b'{"n":%d}\n' % zlib.crc32(b"%d" % number) for number in range(400))
    packed = bytearray(gzip.compress(raw))
    packed[middle := len(packed) // 2] ^= 0xFF
    sound = zlib.decompressobj(wbits=31).decompress(bytes(packed[:middle])).count(b"\n")
    found, fault = read(write(tmp_path, bytes(packed)))
    assert fault == DAMAGED
    assert sound > 100
    assert [line.raw for line in found[:sound]] == raw.splitlines()[:sound]


def test_zeros_behind_a_gzip_member_are_padding(tmp_path: Path) -> None:
    found, fault = read(write(tmp_path, gzip.compress(JSONL) + bytes(600) + gzip.compress(JSONL) + bytes(9)))
    assert (len(found), fault) == (6, "")


def test_a_cut_archive_of_an_array_gives_its_whole_elements(tmp_path: Path) -> None:
    text = json.dumps([{"n": zlib.crc32(b"%d" % number)} for number in range(5000)]).encode()
    whole = gzip.compress(text)
    found, fault = read(write(tmp_path, whole[: len(whole) // 2]))
    assert fault == ENDS_EARLY
    assert [json.loads(line.raw) for line in found] == json.loads(text)[: len(found)]
    assert len(found) > 1000


@pytest.mark.parametrize("packed", PACK)
def test_an_archive_that_unpacks_to_very_much_is_not_held_in_memory(tmp_path: Path, packed: str) -> None:
    path = write(tmp_path, PACK[packed](b"x" * (200 * 2**20) + b"\n" + JSONL))
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    found, fault = read(path, limit=2**20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ([line.oversize for line in found], fault) == ([True, False, False, False], "")
    assert peak < 48 * 2**20


CSV = (
    'id,text,"a, b"\r\n1,"two\r\nlines",x\r\n\r\n2,"say ""hi""",\xe4\r\n3,short\r\n4,a,b,c\r\n5,"open"x,y\r\n6,plain,z'
)


def test_csv_rows_become_objects_of_texts_each_at_its_place(tmp_path: Path) -> None:
    raw = b"\xef\xbb\xbf" + CSV.encode()
    path = write(tmp_path, raw, "a.csv")
    found, fault = read(path)
    assert fault == ""
    assert [json.loads(line.raw) for line in found if not line.fault and line.raw] == [
        {"id": "1", "text": "two\r\nlines", "a, b": "x"},
        {"id": "2", "text": 'say "hi"', "a, b": "\xe4"},
        {"id": "6", "text": "plain", "a, b": "z"},
    ]
    assert [(line.raw, line.fault) for line in found if line.fault] == [
        (b"3,short", RAGGED),
        (b"4,a,b,c", RAGGED),
        (b'5,"open"x,y', NOT_CSV),
    ]
    assert [line.terminated for line in found] == [True] * 6 + [False]
    assert b"".join(raw[line.offset : line.end] for line in found) == raw[found[0].offset :]
    assert read(path, found[4].offset)[0] == found[4:]
    assert read(write(tmp_path, gzip.compress(raw), "a.csv.gz"), found[4].offset)[0] == found[4:]


def test_a_last_csv_row_without_its_end_waits_for_it_and_is_torn_when_nobody_writes_any_more(tmp_path: Path) -> None:
    for tail, torn in (("2,tw", False), ("2", True), ('2,"tw', True)):
        path = write(tmp_path, b"a,b\n1,one\n" + tail.encode(), "a.csv")
        assert read(path)[0][1].fault == (TORN if torn else "")
        waiting = read(path, closed=False)[0][1]
        assert (waiting.fault, waiting.terminated, waiting.offset) == (TORN, False, 10)


def test_csv_bytes_that_are_no_text_stay_in_their_row(tmp_path: Path) -> None:
    path = write(tmp_path, b"a,b\n1,\xff\n2,\x00\n3,c\n", "a.csv")
    found, fault = read(path)
    assert fault == ""
    with pytest.raises(UnicodeDecodeError):
        found[0].raw.decode()
    assert [json.loads(line.raw) for line in found[1:]] == [{"a": "2", "b": "\0"}, {"a": "3", "b": "c"}]


@pytest.mark.parametrize("text", ["a,a\n1,2\n", '"a\n', "\n1,2\n"])
def test_csv_without_a_usable_header_is_reported(tmp_path: Path, text: str) -> None:
    assert read(write(tmp_path, text.encode(), "a.csv")) == ([], NO_HEADER)


def test_csv_may_be_parted_by_semicolons_or_tabs_and_be_empty(tmp_path: Path) -> None:
    for mark in ";\t":
        (row,), _ = read(write(tmp_path, f"a{mark}b\n1,5{mark}2\n".encode(), "a.csv"))
        assert json.loads(row.raw) == {"a": "1,5", "b": "2"}
    for text in (b"", b"a,b\n"):
        assert read(write(tmp_path, text, "a.csv")) == ([], "")


def test_a_csv_row_that_is_too_long_is_passed_over_and_not_held_in_memory(tmp_path: Path) -> None:
    rows = b'1,x\n2,"' + b"y" * (16 * 2**20) + b'"\n3,"' + (b"a" * 99 + b"\n") * 15_000 + b'"\n4,z\n'
    path = write(tmp_path, b"a,b\n" + rows, "a.csv")
    tracemalloc.start()
    found, _ = read(path, limit=2**20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [line.oversize for line in found[:3]] == [False, True, True]
    assert (json.loads(found[-1].raw), found[-1].end) == ({"a": "4", "b": "z"}, path.stat().st_size)
    assert peak < 16 * 2**20


def parquet(folder: Path, table: Any, **options: Any) -> Path:
    path = folder / "a.parquet"
    pq.write_table(table, path, **options)
    return path


def test_parquet_rows_become_objects_whatever_their_types(tmp_path: Path) -> None:
    when = datetime(2026, 11, 1, 10, 0, 0, 5, tzinfo=UTC)
    columns = {
        "text": pa.array(["a", None]),
        "number": pa.array([2**63, None], pa.uint64()),
        "nan": pa.array([float("nan"), 1.5]),
        "decimal": pa.array([Decimal("1.25"), Decimal("7.00")]),
        "date": pa.array([date(2026, 11, 1), None]),
        "time": pa.array([time(10, 0), None]),
        "zoned": pa.array([when, None], pa.timestamp("us", "UTC")),
        "naive": pa.array([when.replace(tzinfo=None), None], pa.timestamp("ns")),
        "span": pa.array([timedelta(seconds=1.5), None]),
        "bytes": pa.array([b"abc", b"\xff\x00"]),
        "struct": pa.array([{"messages": [{"role": "user", "content": "hi"}]}, None]),
        "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "category": pa.array(["x", "x"]).dictionary_encode(),
    }
    found, fault = read(parquet(tmp_path, pa.table(columns)))
    assert fault == ""
    first, second = (json.loads(line.raw) for line in found)
    assert first == {
        "text": "a",
        "number": 2**63,
        "nan": None,
        "decimal": 1.25,
        "date": "2026-11-01",
        "time": "10:00:00",
        "zoned": "2026-11-01T10:00:00.000005+00:00",
        "naive": "2026-11-01T10:00:00.000005",
        "span": 1.5,
        "bytes": "abc",
        "struct": {"messages": [{"role": "user", "content": "hi"}]},
        "map": {"k": 1},
        "category": "x",
    }
    assert (second["decimal"], second["bytes"], second["struct"], second["map"]) == (7, "/wA=", None, {})


def test_parquet_is_read_on_from_any_row_and_a_row_number_is_its_place(tmp_path: Path) -> None:
    path = parquet(tmp_path, pa.table({"n": list(range(5000))}), row_group_size=1500)
    whole, _ = read(path)
    assert [(line.offset, json.loads(line.raw)["n"]) for line in whole] == [(n, n) for n in range(5000)]
    for start in (1, 1499, 1500, 4321, 5000):
        assert read(path, start) == (whole[start:], "")


def test_parquet_text_that_is_no_utf8_costs_its_row_only(tmp_path: Path) -> None:
    texts = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"\xff", b"c"], pa.binary()).buffers())
    found, fault = read(parquet(tmp_path, pa.table({"t": texts})))
    assert ([line.fault for line in found], fault) == (["", "not UTF-8", ""], "")
    assert [line.raw for line in found] == [b'{"t":"a"}', b"", b'{"t":"c"}']


def test_a_truncated_parquet_file_is_reported_and_not_an_error(tmp_path: Path) -> None:
    whole = parquet(tmp_path, pa.table({"n": [1, 2]})).read_bytes()
    for length in (4, 20, len(whole) - 1):
        assert read(write(tmp_path, whole[:length])) == ([], NOT_WHOLE)


def test_a_damaged_page_of_a_parquet_file_costs_what_lies_behind_it(tmp_path: Path) -> None:
    path = parquet(tmp_path, pa.table({"n": list(range(3000))}), row_group_size=1000, compression="zstd")
    group = pq.ParquetFile(path).metadata.row_group(1).column(0)
    raw = bytearray(path.read_bytes())
    raw[group.data_page_offset : group.data_page_offset + 60] = b"\xff" * 60
    found, fault = read(write(tmp_path, bytes(raw)))
    assert fault.startswith("the Parquet file is damaged")
    assert [line.offset for line in found] == list(range(1000))
