"""One line to a JSON object: repaired, refused with a fixed reason, never a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flywheel.intake.decode import decode, mended
from flywheel.intake.records import BadRecord, SkippedRecord
from flywheel.store.digests import canonical_json


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b'{"a": 1', "not JSON"),
        (b"\x00\x00\x00", "not JSON"),
        (b'{"a": "b\x00"}', "not JSON"),
        (b'{"a": NaN}', "NaN or infinity is not JSON"),
        (b'{"a": [-Infinity]}', "NaN or infinity is not JSON"),
        (b'{"a": 1e999}', "number out of range"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a":' + b"[" * 65 + b"]" * 65 + b"}", "nested too deeply"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_with_its_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(BadRecord, match=f"^{reason}$"):
        decode(raw)


@pytest.mark.parametrize("raw", [b"", b"  \t ", b"\r", b"\xef\xbb\xbf"])
def test_a_blank_line_is_skipped(raw: bytes) -> None:
    with pytest.raises(SkippedRecord, match="blank line"):
        decode(raw)


@pytest.mark.parametrize(
    ("raw", "value", "repairs"),
    [
        (b'{"a": 1}', {"a": 1}, set()),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}, {"byte-order mark"}),
        (b'{"a": 1, "a": 2}', {"a": 2}, {"duplicate key"}),
        (rb'{"a": "x\ud83dy"}', {"a": "x\N{REPLACEMENT CHARACTER}y"}, {"unstorable character"}),
        (
            rb'{"\u0000": "\u0000"}',
            {"\N{REPLACEMENT CHARACTER}": "\N{REPLACEMENT CHARACTER}"},
            {"unstorable character"},
        ),
        (rb'{"a": "\ud83d\ude00"}', {"a": "\N{GRINNING FACE}"}, set()),
    ],
)
def test_what_has_one_plain_meaning_is_repaired_and_marked(raw: bytes, value: object, repairs: set[str]) -> None:
    assert decode(raw) == (value, repairs)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_a_reason(raw: bytes) -> None:
    try:
        value, _ = decode(raw)
    except (BadRecord, SkippedRecord):
        return
    assert isinstance(value, dict)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_what_is_decoded_can_be_stored_as_utf8(value: dict[str, object]) -> None:
    decoded, _ = decode(json.dumps(value).encode())
    json.loads(canonical_json(decoded))
    json.dumps(decoded, ensure_ascii=False).encode("utf-8")


pieces = st.sampled_from(
    [
        *(
            '"',
            "\\",
            "\\\\",
            '\\"',
            ":",
            '":',
            '" :',
            '\\":',
            "{",
            "}",
            ",",
            "[",
            "]",
            "a",
            "e9",
            ".",
            " ",
            "\n",
            "\x00",
        ),
        *("\\u0000", "\\u0022", "\\ud83d", "0" * 19, "-1", "1e999", "1E5", "null", "é", "\ufeff"),
        *('{"a":1}', '"a":2,', '"a":"b"', '"a" : ['),
    ]
)


@given(st.lists(pieces, max_size=12).map("".join), st.booleans())
@example('"a":1,"a":2', True)
@example('"a":1,"b\\":":2,"a":3', True)
@example('"a":1,"a" :"\\":"', True)
@example('"a":18446744073709551616', True)
@example('"\\\\":1,"\\\\":"x":', True)
def test_the_quick_way_reads_what_the_careful_one_does(text: str, braced: bool) -> None:
    raw = ("{" + text + "}" if braced else text).encode("utf-8", "surrogatepass")
    assert _outcome(decode, raw) == _outcome(mended, raw)


@pytest.mark.parametrize("depth", [62, 63, 64, 65, 66])
@pytest.mark.parametrize("inside", ["1", "{}", "[]", "[1]", '{"b":1}'])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_both_ways_agree_on_what_is_too_deep(depth: int, inside: str, opened: str, closed: str) -> None:
    raw = ('{"a":' + opened * depth + inside + closed * depth + "}").encode()
    assert _outcome(decode, raw) == _outcome(mended, raw)


def _outcome(read: Any, raw: bytes) -> str:
    try:
        return repr(read(raw))
    except (BadRecord, SkippedRecord) as error:
        return repr(error)
