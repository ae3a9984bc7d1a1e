"""The parts that handle somebody else's bytes, against every way to cut and spell them."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from flywheel.gateway.answer import Answer
from flywheel.gateway.envelope import open_envelope

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(
    before=st.dictionaries(TEXT, VALUE, max_size=4),
    after=st.dictionaries(TEXT, VALUE, max_size=4),
    model=TEXT,
    to=TEXT,
    indent=st.none() | st.integers(0, 3),
    plain=st.booleans(),
)
@example(before={"model": "x"}, after={}, model="m", to="n", indent=None, plain=True)
def test_a_body_keeps_every_byte_but_its_models(
    before: Any, after: Any, model: str, to: str, indent: int | None, plain: bool
) -> None:
    marks = [f"MODEL{number}" for number in range(2)]

    def pairs(value: Any) -> list[str]:
        dumped = [
            json.dumps({key: item}, indent=indent, ensure_ascii=plain)[1:-1].strip() for key, item in value.items()
        ]
        return [text for key, text in zip(value, dumped, strict=True) if key != "model"]

    parts = [*pairs(before), f'"model" : {marks[0]}', *pairs(after), f'"mo\\u0064el":{marks[1]}']
    text = "\n {" + " ,\t".join(parts) + "\r\n}  "

    def filled(name: str) -> bytes:
        found = text
        for mark in marks:
            found = found.replace(mark, json.dumps(name))
        return found.encode()

    envelope = open_envelope(filled(model))
    assert envelope is not None and envelope.model == model
    assert envelope.body == json.loads(filled(model))
    assert envelope.readdressed(to) == filled(to)


@given(st.binary(max_size=40) | st.text('{}[]",: model\\u01\n', max_size=40).map(str.encode))
def test_what_is_no_object_is_told_from_what_is_one(raw: bytes) -> None:
    try:
        expected = json.loads(raw.decode("utf-8"), strict=False)
    except ValueError:
        expected = None
    envelope = open_envelope(raw)
    assert (envelope is not None) == isinstance(expected, dict)
    if envelope is not None:
        assert envelope.readdressed("m") == raw or "model" in envelope.body


def _stream(texts: list[str], end: str, finish: bool, done: bool, comment: bool, spread: bool) -> bytes:
    events = [{"id": "a", "choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    if finish:
        events.append({"id": "a", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    dumped = [json.dumps(event, ensure_ascii=False, indent=0 if spread else None) for event in events]
    blocks = [end.join(f"data: {line}" for line in text.split("\n")) for text in dumped]
    blocks += ["data: [DONE]"] if done else []
    return "".join((f": x{end}" if comment else "") + block + end + end for block in blocks).encode()


@given(
    texts=st.lists(st.text(min_size=1, max_size=6).filter(str.isprintable), min_size=1, max_size=4),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    finish=st.booleans(),
    done=st.booleans(),
    comment=st.booleans(),
    spread=st.booleans(),
    cuts=st.lists(st.integers(0, 600), max_size=40),
    known=st.booleans(),
)
@example(texts=["[DONE]"], end="\n", finish=False, done=True, comment=False, spread=False, cuts=[], known=False)
def test_a_stream_cut_anywhere_passes_whole_says_the_same_and_keeps_its_end(
    texts: list[str], end: str, finish: bool, done: bool, comment: bool, spread: bool, cuts: list[int], known: bool
) -> None:
    body = _stream(texts, end, finish, done, comment, spread)
    borders = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    headers = {"content-type": "text/event-stream"} | ({"content-length": str(len(body))} if known else {})
    answer = Answer(200, headers, stream=True, choices=1)
    passed = b"".join(answer.feed(body[a:b]) for a, b in itertools.pairwise(borders))
    # Before the log has it, nobody may have read a whole finishing chunk or a whole [DONE].
    assert spread or b'"finish_reason": "stop"}]}' not in passed
    assert b"data: [DONE]" not in passed
    whole_events = passed.decode(errors="replace").replace(end, "\n").split("\n\n")[:-1]
    assert not any('"finish_reason": "stop"' in event for event in whole_events)
    assert not known or len(passed) < len(body)
    assert passed + answer.end() == body
    assert answer.id == "a" and answer.choices[0]["message"]["content"] == "".join(texts)
    assert answer.fault == ("" if finish or done else "incomplete_answer")


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6), st.booleans(), st.sampled_from(["", "gzip"]))
def test_any_bytes_at_all_pass_whole(body: bytes, cuts: list[int], stream: bool, encoding: str) -> None:
    borders = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    answer = Answer(200, {"content-encoding": encoding} if encoding else {}, stream=stream, choices=1)
    passed = b"".join(answer.feed(body[a:b]) for a, b in itertools.pairwise(borders))
    assert passed + answer.end() == body
    assert answer.fault
