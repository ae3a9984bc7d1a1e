"""Redaction of any text: it never fails, changes nothing twice, and leaves all but the values as it was."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from flywheel.datasets.redact import redact
from flywheel.datasets.redact.find import find
from flywheel.datasets.redact.spans import settle
from flywheel.datasets.redact.views import View

KEY = b"k" * 32

PIECES = st.sampled_from(
    [
        *("ana@acme.io", "ANA@ACME.IO", "ana@example.com", "ü.m@firma.de", "@", "'"),
        *("+1 415-867-5309", "4158675309", "020 7946 0958", "555-0142", "(11) 98765-4321", "06 12 34 56 78", "+49"),
        *("4111 1111 1111 1111", "378282246310005", "4242", "499999", "DE89 3704 0044 0532 0130 00", "GB29NWBK"),
        *("078-05-1120", "666-12-3456", "AB123456C", "54362315K", "390.533.447-05", "2341 2341 2346", "111222333"),
        *("44051401359", "36574261809", "880320-0016", "295109912611193", "RCCMNL83S18D969H", "123456782"),
        *("81.2.69.142", "192.0.2.1", "1.2.3.4", "2a02:8070::1f", "::", "127.0.0.1"),
        *("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"),
        *(
            "postgres://a:pw@db/x",
            "https://",
            "AKIAIOSFODNN7EXAMPLE",
            "[SECRET:aws]",
            "-----BEGIN PRIVATE KEY-----\nMII",
        ),
        *("phone", "tel", "SSN", "my number is", "order", "id", "version", "PESEL", "BSN", "Steuer-ID", "cpf", "ip"),
        *(" ", "  ", "\n", ".", ",", "-", "/", "(", ")", ":", "x", "+", "\\n", "\\", '"', "{", "}", "\u200b", "é"),
    ]
)
texts = st.one_of(
    st.lists(PIECES, max_size=9).map("".join),
    st.lists(PIECES, max_size=7).map(" ".join),
    st.text(max_size=60),
    st.from_regex(r"[-+0-9A-Fa-f .:/@()x]{0,60}", fullmatch=True),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def said(*contents: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content} for content in contents]


def contents(*before: str, conversation: str = "c") -> list[str]:
    return [m["content"] for m in redact(said(*before), key=KEY, conversation=conversation).messages]


@given(st.lists(texts, max_size=3))
def test_redacting_twice_is_redacting_once(before: list[str]) -> None:
    once = contents(*before)
    assert contents(*once) == once
    again = redact(said(*once), key=KEY, conversation="another")
    assert [m["content"] for m in again.messages] == once
    assert not again.counts


@given(texts)
def test_what_is_no_value_stays_to_the_letter(text: str) -> None:
    view = View(text)
    found = find(view.text)
    sure = {(span.kind, span.value) for span in found if span.sure}
    spans = settle(s for s in found if (s.kind, s.value) in sure or s.kind.invented(s.value))
    rest: list[str] = []
    done = 0
    for span in spans:
        assert done <= span.start < span.end <= len(view.text)
        rest.append(view.text[done : span.start])
        done = span.end
    rest.append(view.text[done:])
    # What is left between two addresses, as in a@b.io@c@d.io, makes a new address with what takes their place.
    assume(len(rest) == 1 or not any(piece.startswith("@") or piece.endswith("@") for piece in rest))
    (new,) = contents(text)
    if view.text == text:
        for piece in rest:
            place = new.find(piece)
            assert place >= 0
            new = new[place + len(piece) :]


@given(values, st.booleans(), st.integers(0, 2))
def test_json_keeps_its_structure(value: Any, ascii_only: bool, depth: int) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    for _ in range(depth):
        text = json.dumps({"inner": text}, ensure_ascii=ascii_only)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
    done = redact([{"role": "assistant", "content": None, "tool_calls": [call]}], key=KEY, conversation="c")
    new = done.messages[0]["tool_calls"][0]["function"]["arguments"]
    read = json.loads(new)
    for _ in range(depth):
        read = json.loads(read["inner"])
    assert _shape(read) == _shape(value)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return [_shape(one) for one in value.values()]
    return [_shape(one) for one in value] if isinstance(value, list) else type(value)


@given(st.lists(texts, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_messages_does_not_matter(before: list[str], order: random.Random) -> None:
    new = dict(zip(before, contents(*before), strict=True))
    shuffled = order.sample(before, len(before))
    assert dict(zip(shuffled, contents(*shuffled), strict=True)) == new


@given(st.sampled_from(["ana@acme.io", "+1 415-867-5309", "4111 1111 1111 1111", "81.2.69.142", "078-05-1120"]), texts)
def test_a_value_has_one_surrogate_in_a_conversation_and_another_in_the_next(value: str, other: str) -> None:
    one, same = contents(f"<{value}>", f"<{value}>\n{other}")
    assert same.startswith(one)
    assert contents(f"<{value}>", conversation="d") != [one]
