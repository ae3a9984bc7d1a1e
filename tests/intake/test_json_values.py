"""JSON arrays split into their elements without parsing them: exact, whatever surrounds, fills or breaks them."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.json_values import NOT_CLOSED, read_values
from flywheel.intake.reader import FileFault, Line

BOM = b"\xef\xbb\xbf"

blanks = st.text(" \t\r\n", max_size=3)
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


def split(text: bytes, *, block: int = 2**16, limit: int = 2**20, offset: int = 0) -> tuple[list[Line], str]:
    """The elements, and what was wrong at the end."""
    stream = io.BytesIO(text)
    stream.seek(offset)
    found = []
    try:
        for line in read_values(stream, offset, block=block, limit=limit):
            found.append(line)
    except FileFault as fault:
        return found, str(fault)
    return found, ""


def raws(text: bytes, **options: Any) -> list[bytes]:
    return [line.raw for line in split(text, **options)[0]]


@st.composite
def arrays(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """A JSON array as somebody may have written it, with any blanks, and its elements."""
    elements = draw(st.lists(values, max_size=5))
    if draw(st.booleans()):
        return draw(blanks) + json.dumps(elements, indent=draw(st.none() | st.integers(0, 3))) + draw(blanks), elements
    escaped = draw(st.booleans())
    parts = [draw(blanks) + json.dumps(value, ensure_ascii=escaped) + draw(blanks) for value in elements]
    return draw(blanks) + "[" + draw(blanks) + ",".join(parts) + "]" + draw(blanks), elements


@given(arrays(), st.integers(1, 40))
def test_any_array_has_the_elements_that_json_reads_wherever_its_blocks_are_cut(
    array: tuple[str, list[Any]], block: int
) -> None:
    text, elements = array
    assert json.loads(text) == elements
    raw = text.encode()
    found, fault = split(raw, block=block)
    assert ([json.loads(line.raw) for line in found], fault) == (elements, "")
    for line in found:
        assert line.terminated
        assert raw[line.offset : line.end].rstrip() == line.raw


@given(arrays(), st.integers(1, 40), st.data())
def test_reading_on_behind_any_element_gives_the_rest(
    array: tuple[str, list[Any]], block: int, data: st.DataObject
) -> None:
    raw = array[0].encode()
    found, _ = split(raw)
    if found:
        last = data.draw(st.integers(0, len(found) - 1))
        assert split(raw, block=block, offset=found[last].end) == (found[last + 1 :], "")


@given(st.binary(max_size=60) | st.text('[]{}",: \\\n1a', max_size=60).map(str.encode), st.integers(1, 20))
def test_whatever_the_bytes_are_every_one_of_them_is_in_a_record_or_separates_two(raw: bytes, block: int) -> None:
    found, _ = split(raw, block=block)
    place = 0
    for line in found:
        assert line.offset >= place and line.end > line.offset
        assert not raw[place : line.offset].strip(b" \t\r\n,[]" + BOM)
        place = line.end
    assert not raw[place:].strip(b" \t\r\n,[]" + BOM)
    assert split(raw, block=1000)[0] == found


@given(st.lists(st.dictionaries(st.text(max_size=4), leaves, max_size=3), min_size=2, max_size=5), st.data())
def test_a_cut_array_gives_its_whole_elements_and_says_that_it_does_not_end(
    elements: list[Any], data: st.DataObject
) -> None:
    raw = json.dumps(elements).encode()
    cut = data.draw(st.integers(1, len(raw) - 1))
    whole = [line for line in split(raw)[0] if line.end <= cut]
    found, fault = split(raw[:cut])
    assert fault == NOT_CLOSED
    assert [line for line in found if line.terminated] == whole
    assert [line.raw for line in found[len(whole) :]] in ([], [raw[found[-1].offset : cut].rstrip()] if found else [])


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        (b"", []),
        (b"[]", []),
        (b" \r\n[ \n]\r\n", []),
        (BOM + b'[{"a": 1}]', [b'{"a": 1}']),
        (b'[{"a":1},\r\n\r\n{"b":2}\r\n]\r\n', [b'{"a":1}', b'{"b":2}']),
        (b'[{"a":1} {"b":2}]', [b'{"a":1}', b'{"b":2}']),
        (b'[{"a":1} oops, {"b":2}]', [b'{"a":1}', b"oops", b'{"b":2}']),
        (b'[{"a":1}}, {"b":2}]', [b'{"a":1}', b"}", b'{"b":2}']),
        (b'[{"a":1},,{"b":2}]', [b'{"a":1}', b'{"b":2}']),
        (b'[{"a":NaN}, nan, {"b":2}]', [b'{"a":NaN}', b"nan", b'{"b":2}']),
        (b'[{"a":"\xff\x00"}, {"b":2}]', [b'{"a":"\xff\x00"}', b'{"b":2}']),
        (b'[{"a":1}] the end', [b'{"a":1}', b"the end"]),
        (b'[{"a":1}]\n[{"b":2}, [3]]', [b'{"a":1}', b'{"b":2}', b"[3]"]),
        (b'{\n "a": 1\n}\n{\n "b": 2\n}\n', [b'{\n "a": 1\n}', b'{\n "b": 2\n}']),
    ],
)
def test_what_people_write_around_and_between_elements_costs_none_of_them(text: bytes, elements: list[bytes]) -> None:
    assert raws(text) == elements
    assert raws(text, block=1) == elements


@pytest.mark.parametrize("indent", [b"", b"  ", b"\t"])
@pytest.mark.parametrize(
    "cut",
    [
        b'{"a": "no end}',
        b'{"a": ["\\"no end}',
        b'{"a": 1',
        b'{"a": {"b": [1]}',
        b'{"a": {"b": [1}}',
        b'{"a": "two\nlines',
    ],
)
def test_an_element_that_does_not_close_ends_where_the_next_line_begins_like_it(indent: bytes, cut: bytes) -> None:
    ends = b",\r\n" + indent
    text = b"[\n" + indent + ends.join([b'{"x": [{"y": 1}]}', cut, b'{"b": 2}', b'{"c": [{}]}']) + b"\n]"
    for block in (1, 7, 1000):
        found, fault = split(text, block=block)
        assert [line.raw.rstrip(b",") for line in found] == [b'{"x": [{"y": 1}]}', cut, b'{"b": 2}', b'{"c": [{}]}']
        assert fault == ""
        for line in found:
            assert text[line.offset :].startswith(line.raw)


def test_ten_thousand_levels_inside_an_element_are_one_element() -> None:
    deep = b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    assert raws(b'[{"b":1},' + deep + b',{"c":2}]') == [b'{"b":1}', deep, b'{"c":2}']


def test_an_element_at_the_limit_is_read_and_one_byte_more_is_passed_over() -> None:
    at, over = b'{"a":"' + b"x" * 92 + b'"}', b'{"a":"' + rb"\"" * 46 + b'x"}'
    assert (len(at), len(over)) == (100, 101)
    for block in (1, 7, 1000):
        found, fault = split(b"[" + at + b"," + over + b',{"b":1}]', block=block, limit=100)
        assert [line.oversize for line in found] == [False, True, False]
        assert (found[1].offset, found[1].end, found[2].raw, fault) == (102, 203, b'{"b":1}', "")
        assert over.startswith(found[1].raw)


def test_a_huge_element_is_not_held_in_memory() -> None:
    text = b'[{"a":"' + rb"x\"" * (8 * 2**20) + b'"},{"b":1}]'
    tracemalloc.start()
    found, _ = split(text, limit=2**20, block=2**18)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(line.oversize, len(line.raw)) for line in found] == [(True, 4096), (False, 7)]
    assert peak < 6 * 2**20
