"""Streams: however the chunks were logged and whatever a provider leaves out, one response comes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.formats import chat, named, sse
from flywheel.intake.records import BadRecord, Context, InteractionRecord

Json = dict[str, Any]


def chunk(delta: Json | None, finish: str | None = None, index: int | None = 0, **fields: Any) -> Json:
    choice = {"delta": delta, "finish_reason": finish} | ({} if index is None else {"index": index})
    return {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice], **fields}


def call(arguments: str | None, *, name: str | None = None, **fields: Any) -> Json:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return chunk({"tool_calls": [{**fields, "function": function}]})


def calls(chunks: list[Json]) -> list[tuple[Any, Any, Any]]:
    message = sse.assemble(chunks)["choices"][0]["message"]
    functions = [(one.get("id"), one["function"]) for one in message["tool_calls"]]
    return [(own, function.get("name"), function.get("arguments")) for own, function in functions]


ANSWER = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo\n\ndata: {"}),
    chunk({}, "stop"),
    {"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": {"total_tokens": 9}},
]
WHOLE = {
    "object": "chat.completion",
    "id": "c1",
    "created": 7,
    "model": "m",
    "usage": {"total_tokens": 9},
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello\n\ndata: {"}, "finish_reason": "stop"}],
}


def lines(chunks: list[Json], end: str = "\n") -> str:
    return "".join(f"data: {json.dumps(one)}{end}{end}" for one in chunks) + f"data: [DONE]{end}{end}"


@pytest.mark.parametrize(
    "stream",
    [
        ANSWER,
        lines(ANSWER),
        lines(ANSWER, "\r\n"),
        lines(ANSWER).replace('data: {"id', 'data:{"id').replace("data: [", "data:["),
        lines(ANSWER).replace("\n\n", "\n"),
        ": keep-alive\n\n" + lines(ANSWER).replace("\n\n", "\n\n: ping\n\nevent: message\nid: 4\nretry: 10\n"),
        "".join(f"data: {line}\n" for line in json.dumps(ANSWER[0], indent=1).split("\n")) + "\n" + lines(ANSWER[1:]),
        [f"data: {json.dumps(one)}" for one in ANSWER] + ["data: [DONE]"],
        [f"data: {json.dumps(one)}\n\n" for one in ANSWER] + [": keep-alive\n\n", "data: [DONE]\n\n"],
        [lines(ANSWER)[:40], lines(ANSWER)[40:131], lines(ANSWER)[131:]],
        [*ANSWER, "[DONE]"],
        [{"event": None, "data": json.dumps(one)} for one in ANSWER] + [{"event": None, "data": "[DONE]"}],
        [{"event": "message", "data": one} for one in ANSWER],
    ],
)
def test_a_stream_in_any_form_is_the_same_response(stream: Any) -> None:
    assert sse.is_stream(stream)
    assert sse.whole(stream) == WHOLE


@pytest.mark.parametrize(
    "response",
    [
        "The data: {none}",
        "data: 5 rows",
        WHOLE,
        None,
        7,
        [],
        [{"choices": [{"message": {"content": "a"}}]}],
        [{"role": "assistant", "content": "data: {}"}],
        ["a", "b"],
        {"data": "x"},
    ],
)
def test_what_is_no_stream_stays_as_it_is(response: Any) -> None:
    assert not sse.is_stream(response)
    assert sse.whole(response) is response


def test_interleaved_choices_are_kept_apart() -> None:
    stream = [
        chunk({"content": "b"}, index=1),
        chunk({"content": "a"}, index=0),
        chunk({"content": "B"}, "length", index=1),
        chunk({"content": "A"}, "stop", index=0),
    ]
    found = chat.choices(sse.assemble(stream)["choices"])
    assert [(one.message["content"], one.finish_reason) for one in found] == [("aA", "stop"), ("bB", "length")]
    both = {"choices": [{"index": 0, "delta": {"content": "x"}}, {"index": 1, "delta": {"content": "y"}}]}
    told = sse.assemble([both, both])["choices"]
    assert [one["message"]["content"] for one in told] == ["xx", "yy"]


def test_tool_calls_are_joined_by_index_and_their_arguments_stay_the_text_they_were() -> None:
    stream = [
        call("", index=1, id="b", name="track"),
        call('{ "id"', index=0, id="a", name="find"),
        call('{"n":1', index=1),
        call(' : "42" }', index=0),
        call("}", index=1),
    ]
    assert calls(stream) == [("a", "find", '{ "id" : "42" }'), ("b", "track", '{"n":1}')]


def test_without_an_index_tool_calls_are_joined_by_id() -> None:
    stream = [
        call('{"a":', id="a", name="find"),
        call('{"b":', id="b", name="track"),
        call("1}", id="a"),
        call("2", id="b"),
        call("}"),
    ]
    assert calls(stream) == [("a", "find", '{"a":1}'), ("b", "track", '{"b":2}')]


@pytest.mark.parametrize(("first", "later"), [({"index": 0}, {}), ({}, {"index": 0})])
@pytest.mark.parametrize("own", [{}, {"id": "a"}])
def test_an_index_that_only_some_deltas_have_joins_them_all_the_same(first: Json, later: Json, own: Json) -> None:
    stream = [call("{", id="a", name="find", **first), call('"n":1', **later, **own), call("}", **later)]
    assert calls(stream) == [("a", "find", '{"n":1}')]


ARGUMENTS = ['{"id": "42"}', '{ "a":1,"a" :2 }', '{"city":"Zürich"}', "", "{broken"]


@given(st.data())
def test_interleaved_tool_calls_are_joined_by_index_or_by_id_to_the_letter(data: st.DataObject) -> None:
    whole = data.draw(st.lists(st.sampled_from(ARGUMENTS), min_size=1, max_size=4))
    by_index = data.draw(st.booleans())
    deltas = []
    for place, arguments in enumerate(whole):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(arguments)), max_size=3)))
        pieces = [arguments[start:end] for start, end in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
        fields: Json = {"index": place} if by_index else {"id": f"call-{place}"}
        begin = call(pieces[0], name=f"find_{place}", **{"id": f"call-{place}", **fields})
        deltas.append([begin, *(call(piece, **fields) for piece in pieces[1:])])
    stream = [chain.pop(0) for chain in deltas]  # the calls begin in order
    while rest := [chain for chain in deltas if chain]:
        stream.append(data.draw(st.sampled_from(rest)).pop(0))
    assert calls(stream) == [(f"call-{place}", f"find_{place}", arguments) for place, arguments in enumerate(whole)]


def test_one_index_for_all_tool_calls_is_told_apart_by_id() -> None:
    stream = [
        call("{", index=0, id="a", name="find"),
        call("}", index=0, id=""),
        call('{"b"', index=0, id="b", name="find"),
        call(":2}", index=0),
        call("", index=0, id="a"),
    ]
    assert calls(stream) == [("a", "find", "{}"), ("b", "find", '{"b":2}')]


def test_whole_calls_with_neither_index_nor_id_are_told_apart_by_their_names() -> None:
    stream = [call('{"a":1}', index=0, name="find"), call('{"a":2}', index=0, name="find")]
    assert calls(stream) == [(None, "find", '{"a":1}'), (None, "find", '{"a":2}')]
    assert calls([call('{"a":1}', name="find"), call('{"a":2}', name="find")]) == calls(stream)


def test_a_name_that_comes_in_pieces_or_every_time_is_one_name() -> None:
    assert calls([call(None, index=0, id="a", name="find_"), call("{}", index=0, name="order")]) == [
        ("a", "find_order", "{}")
    ]
    again = [call("{", index=0, id="a", name="find", type="function"), call("}", index=0, id="a", name="find")]
    assert calls(again) == [("a", "find", "{}")]


def test_arguments_that_a_provider_gives_as_an_object_become_text_later() -> None:
    stream = [chunk({"tool_calls": [{"id": "a", "function": {"name": "find", "arguments": {"id": 1}}}]})]
    (found,) = chat.choices(sse.assemble(stream)["choices"])
    assert found.message["tool_calls"][0]["function"] == {"name": "find", "arguments": '{"id":1}'}


def test_the_old_function_call_refusals_and_reasoning_are_joined_too() -> None:
    stream = [
        chunk({"role": "assistant", "function_call": {"name": "find", "arguments": "{"}}),
        chunk({"function_call": {"arguments": "}"}, "refusal": "I "}),
        chunk({"refusal": "will not.", "reasoning_content": "Hm", "content": None}),
        chunk({"reasoning": "m."}, "function_call"),
    ]
    (choice,) = sse.assemble(stream)["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "refusal": "I will not.",
        "reasoning_content": "Hmm.",
        "function_call": {"name": "find", "arguments": "{}"},
    }


def test_content_parts_and_text_completions_are_joined() -> None:
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    (choice,) = sse.assemble([chunk({"content": "See:"}), chunk({"content": [picture]})])["choices"]
    assert choice["message"]["content"] == [{"type": "text", "text": "See:"}, picture]
    pieces = [{"object": "text_completion", "choices": [{"index": 0, "text": piece}]} for piece in ("a", "b")]
    assert sse.assemble(pieces)["choices"][0]["message"]["content"] == "ab"


def test_an_error_in_the_stream_stands_beside_what_came_before_it() -> None:
    found = sse.assemble([chunk({"content": "Hel"}), {"error": {"code": "overloaded"}}])
    assert found["error"] == {"code": "overloaded"}
    assert found["choices"][0]["message"]["content"] == "Hel"


def test_of_the_responses_api_the_last_whole_response_is_taken() -> None:
    item = {"type": "message", "role": "assistant", "content": []}
    began = {"type": "response.created", "response": {"id": "r1", "status": "in_progress", "output": []}}
    done = {"type": "response.output_item.done", "item": item}
    ended = {"type": "response.completed", "response": {"id": "r1", "status": "completed", "output": [item, item]}}
    text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in (began, done, ended))
    assert sse.whole(text) == {"object": "response", **ended["response"]}
    cut = sse.whole([began, done])
    assert (cut["id"], cut["status"], cut["output"]) == ("r1", "incomplete", [item])


REQUEST = {"messages": [{"role": "user", "content": "Hi"}], "model": "m", "stream": True}


@pytest.mark.parametrize("stream", [ANSWER, lines(ANSWER)], ids=["chunks", "text"])
@pytest.mark.parametrize(
    ("fmt", "place", "record"),
    [
        ("openai_chat", "response", {"request": REQUEST}),
        ("openai_chat", "response", {"messages": REQUEST["messages"]}),
        ("nvidia_flywheel", "response", {"workload_id": "w", "request": REQUEST}),
        (
            "litellm",
            "response",
            {"call_type": "completion", "id": "c", "startTime": 1, "messages": REQUEST["messages"]},
        ),
        (
            "langfuse",
            *(
                "output",
                {"id": "o", "type": "GENERATION", "trace_id": "t", "start_time": "", "input": "Hi", "level": ""},
            ),
        ),
        (
            "helicone",
            "response_body",
            {"request_id": "h", "request_created_at": "", "response_status": 200, "request_body": REQUEST},
        ),
    ],
)
def test_every_chat_shaped_format_reads_a_streamed_answer(fmt: str, place: str, record: Json, stream: Any) -> None:
    found = named(fmt).records({**record, place: stream}, Context("t", frozenset({"t"})))[0]
    assert isinstance(found, InteractionRecord)
    (choice,) = found.choices
    assert (choice.message["content"], choice.finish_reason) == ("Hello\n\ndata: {", "stop")


@pytest.mark.parametrize(
    "stream",
    [
        lines(ANSWER)[:-60],
        [*ANSWER, 5],
        [*ANSWER, None],
        [chunk({"content": "a"}), {"choices": ["b"]}],
        [chunk({"tool_calls": ["b"]})],
        [{"choices": [{"delta": "text"}]}],
    ],
)
def test_a_broken_chunk_refuses_the_stream(stream: Any) -> None:
    with pytest.raises(BadRecord):
        sse.whole(stream)


@given(st.data())
def test_cut_anywhere_between_its_bytes_a_stream_stays_the_same(data: st.DataObject) -> None:
    text = lines(ANSWER)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(text) - 1), max_size=6, unique=True)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert sse.assemble(pieces) == WHOLE


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(["{", "data: {}", "[DONE]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "delta", "index", "tool_calls", "id", "function", "arguments", "name", "data"])
            | st.sampled_from(["type", "object", "response", "content", "usage", "error", "item", "finish_reason"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values, st.booleans())
def test_anything_is_a_stream_is_none_or_is_refused(value: Any, as_text: bool) -> None:
    try:
        sse.whole(f"data: {{}}\ndata: {json.dumps(value)}" if as_text else [chunk({"content": "a"}), value])
        sse.whole(value)
    except BadRecord:
        pass
