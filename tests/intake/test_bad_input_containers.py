"""Bad records inside arrays, archives and tables: each ends where it belongs, its neighbours are untouched."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from flywheel.config_logs import ColumnMap
from flywheel.intake import import_path
from flywheel.intake.containers import container_of, read_records

Rows = list[dict[str, Any]]


def call(name: str, text: str = "hi") -> dict[str, Any]:
    said = {"role": "assistant", "content": "hello"}
    return {"messages": [{"role": "user", "content": text}, said], "id": name, "ts": 1764500000}


def raw(name: str, text: str = "hi") -> bytes:
    return json.dumps(call(name, text)).encode()


BAD: dict[str, tuple[bytes, str]] = {
    "not UTF-8": (raw("x").replace(b"hi", b"\xff"), "not UTF-8"),
    "deep": (b'{"messages":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested too deeply"),
    "NaN": (b'{"messages": NaN}', "NaN or infinity is not JSON"),
    "a list": (b'["not an object"]', "not a JSON object"),
    "a text": (b'"not an object"', "not a JSON object"),
    "no JSON": (b'{"messages": [1 2]}', "not JSON"),
    "too long": (b'{"messages": "' + b"x" * (33 * 2**20) + b'"}', "line too long"),
}

JOIN: dict[str, Callable[[list[bytes]], bytes]] = {
    "array": lambda records: b"\xef\xbb\xbf[\r\n" + b",\r\n".join(records) + b"\r\n]\r\n",
    "gzip": lambda records: b"".join(gzip.compress(record + b"\n", 1) for record in records),
    "zstd": lambda records: zstandard.compress(b"\r\n".join(records) + b"\r\n", 1),
    "array.gz": lambda records: gzip.compress(b"[" + b", ".join(records) + b"]", 1),
}


@pytest.fixture
def take(deployment: Any, tmp_path: Path) -> Callable[..., Any]:
    def run(content: bytes, name: str = "log.json", **options: Any) -> Any:
        (tmp_path / name).write_bytes(content)
        report = import_path(
            deployment.config, deployment.home, deployment.registry, deployment.task, tmp_path / name, **options
        )
        report.check()
        return report

    return run


@pytest.mark.parametrize("container", JOIN)
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_record_is_quarantined_at_its_place_and_its_neighbours_are_kept(
    take: Callable[..., Any], stored: Callable[[str], Rows], tmp_path: Path, bad: str, container: str
) -> None:
    broken, reason = BAD[bad]
    report = take(JOIN[container]([raw("before"), broken, raw("after")]))
    assert (report.read, report.kept, report.reasons) == (3, 2, {reason: 1})
    assert {row["interaction_id"] for row in stored("interactions")} == {"before", "after"}
    (row,) = stored("quarantine")
    content = (tmp_path / "log.json").read_bytes()
    plain = {
        "gzip": lambda: gzip.decompress(content),
        "zstd": lambda: zstandard.ZstdDecompressor().decompressobj().decompress(content),
        "array.gz": lambda: gzip.decompress(content),
    }.get(container, lambda: content)()
    assert plain[row["source_offset"] :].startswith(broken)


@pytest.mark.parametrize("container", JOIN)
def test_a_record_of_20_mb_is_kept_whole(
    take: Callable[..., Any], stored: Callable[[str], Rows], container: str
) -> None:
    text = 'x"\\' * 2**22
    assert len(raw("big", text)) > 20 * 2**20
    assert take(JOIN[container]([raw("before"), raw("big", text), raw("after")])).kept == 3
    assert any(json.loads(row["request"])["messages"][0]["content"] == text for row in stored("interactions"))


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"[ ]", gzip.compress(b""), gzip.compress(b"[]"), b"\xef\xbb\xbf[\n]\n"]
)
def test_an_empty_file_and_an_empty_array_hold_nothing(take: Callable[..., Any], content: bytes) -> None:
    report = take(content)
    assert (report.read, report.reasons) == (0, {})


def test_text_between_elements_is_a_record_of_its_own(take: Callable[..., Any], stored: Callable[[str], Rows]) -> None:
    content = b"[" + raw("a") + b" and then, " + raw("b") + b"] the end\n"
    report = take(content)
    assert (report.kept, report.reasons) == (2, {"not JSON": 2})
    assert [row["raw"] for row in stored("quarantine")] == ["and then", "the end"]
    assert [content[row["source_offset"] :].split(b",")[0][:8] for row in stored("quarantine")] == [
        b"and then",
        b"the end\n",
    ]


def test_bad_rows_of_a_csv_are_quarantined_at_their_place(
    take: Callable[..., Any], stored: Callable[[str], Rows]
) -> None:
    big = ('x"' * 100 + "\n") * 2**16
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([["q", "a"], ["one", "1"], ["short"], [big, "2"], ["three", "3", "more"], ["four\0", "4"]])
    content = text.getvalue().encode() + b"\xff,5\r\nsix,6"
    report = take(content, "log.csv", columns=ColumnMap(prompt="q", completion="a"))
    ragged = "another number of cells than the header has"
    assert report.kept == 4
    assert report.reasons == {ragged: 2, "not UTF-8": 1, "repaired: unstorable character": 1, "time missing": 4}
    asked = {json.loads(row["request"])["messages"][0]["content"] for row in stored("interactions")}
    assert asked == {"one", big, "four\N{REPLACEMENT CHARACTER}", "six"}
    for row in stored("quarantine"):
        assert content[row["source_offset"] :].startswith((b"short", b"three", b"\xff"))


def test_bad_rows_of_a_parquet_file_are_quarantined_by_their_number(
    take: Callable[..., Any], stored: Callable[[str], Rows]
) -> None:
    texts = pa.array([b"one", b"\xff", b"x" * (33 * 2**20), b"four\0", b"five"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 5, texts.buffers())
    sink = io.BytesIO()
    pq.write_table(pa.table({"q": texts, "a": ["1", "2", "3", "4", "5"]}), sink)
    report = take(sink.getvalue(), "log.parquet", columns=ColumnMap(prompt="q", completion="a"))
    assert report.kept == 3
    assert {row["source_offset"]: row["reason"] for row in stored("quarantine")} == {1: "not UTF-8", 2: "line too long"}


CHILD = """
import sys
from pathlib import Path
from flywheel.intake.containers import container_of, read_records
path = Path(sys.argv[1])
count = sum(1 for _ in read_records(path, container_of(path)))
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(count, peak)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.json", "a.jsonl.gz", "a.json.zst", "a.csv", "a.parquet"])
def test_the_memory_that_reading_takes_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    peaks = []
    for rows in (8_000, 80_000):
        path = tmp_path / name
        table = [call(f"c{n}", f"{n} " * 300) for n in range(rows)]
        text = json.dumps(table).encode() if name[2:6] == "json" and "jsonl" not in name else b""
        if name == "a.parquet":
            pq.write_table(pa.Table.from_pylist(table), path)
        elif name == "a.csv":
            with path.open("w", newline="") as handle:
                csv.writer(handle).writerows([["q", "a"], *([row["messages"][0]["content"], "a"] for row in table)])
        elif name == "a.jsonl.gz":
            path.write_bytes(gzip.compress(b"".join(json.dumps(row).encode() + b"\n" for row in table), 1))
        else:
            path.write_bytes(zstandard.compress(text) if name.endswith("zst") else text)
        assert sum(1 for _ in read_records(path, container_of(path))) == rows
        told = subprocess.run([sys.executable, "-c", CHILD, str(path)], check=True, capture_output=True, text=True)
        count, peak = told.stdout.split()
        assert int(count) == rows
        peaks.append(int(peak) / 1024)
    assert peaks[1] - peaks[0] < 60, f"{peaks} MiB"
