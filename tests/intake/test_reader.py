"""Lines with byte offsets, in bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.reader import read_lines


def test_every_line_starts_where_its_offset_says(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes("ä\n\nsecond line\r\nlast".encode())
    lines = list(read_lines(path))
    assert [line.raw for line in lines] == ["ä".encode(), b"", b"second line", b"last"]
    assert [line.terminated for line in lines] == [True, True, True, False]
    whole = path.read_bytes()
    assert b"".join(whole[line.offset : line.end] for line in lines) == whole


@given(st.lists(st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"")), max_size=8), st.data())
def test_reading_on_from_any_line_gives_the_rest(tmp_path_factory, raws: list[bytes], data) -> None:
    path = tmp_path_factory.mktemp("lines") / "log.jsonl"
    path.write_bytes(b"".join(raw + b"\n" for raw in raws))
    lines = list(read_lines(path, limit=8))
    start = data.draw(st.integers(0, len(lines)))
    offset = lines[start].offset if start < len(lines) else path.stat().st_size
    assert list(read_lines(path, offset, limit=8)) == lines[start:]


def test_a_line_at_the_limit_is_read_and_one_byte_more_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"x" * 100 + b"\n" + b"y" * 101 + b"\nafter\n" + b"z" * 500)
    fits, too_long, after, tail = read_lines(path, limit=100)
    assert (fits.oversize, len(fits.raw)) == (False, 100)
    assert (too_long.oversize, too_long.terminated, too_long.end) == (True, True, 203)
    assert after.raw == b"after"
    assert (tail.oversize, tail.terminated) == (True, False)


def test_a_huge_line_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"x" * (24 * 2**20) + b"\nafter\n")
    tracemalloc.start()
    lines = [(line.oversize, len(line.raw)) for line in read_lines(path, limit=2**20)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines == [(True, 4096), (False, 5)]
    assert peak < 6 * 2**20
