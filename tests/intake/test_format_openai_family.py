"""OpenAI's own shapes: logged and stored completions, streams, fine-tuning rows, preference rows, the Responses API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.detect import detect
from flywheel.intake.formats import named
from flywheel.intake.records import BadRecord, Context, FeedbackRecord, InteractionRecord, SkippedRecord

FAMILY = ("openai_chat", "openai_preference", "openai_responses")
CONTEXT = Context("support_router", frozenset({"support_router", "writer"}))
USER = {"role": "user", "content": "Hi"}


@pytest.fixture(params=FAMILY)
def family(request: Any, log_fixture: Any) -> Any:
    return log_fixture(request.param)


def parse(fmt: str, record: dict[str, Any]) -> tuple[InteractionRecord, list[FeedbackRecord]]:
    call, *said = named(fmt).records(record, CONTEXT)
    assert isinstance(call, InteractionRecord)
    feedback = [one for one in said if isinstance(one, FeedbackRecord)]
    assert len(feedback) == len(said)
    return call, feedback


def test_an_import_of_the_whole_family_reconciles_and_repeats_nothing(
    log_fixture: Any, take_in: Any, stored: Any
) -> None:
    records = [record for name in FAMILY for record in log_fixture(name).records]
    report = take_in(records)
    assert (report.read, report.kept, report.quarantined, report.skipped) == (25, 17, 4, 4)
    again = take_in(records)
    assert (again.kept, again.duplicate) == (0, 17)
    said = [(row["kind"], row["target_id"]) for row in stored("feedback")]
    assert ("thumb", "chatcmpl-oai-2") in said and ("correction", "chatcmpl-oai-2") in said
    assert [kind for kind, _ in said].count("preference") == 2
    assert not stored("orphans")


def test_a_verdict_that_was_added_to_a_stored_completion_later_is_new(
    log_fixture: Any, take_in: Any, stored: Any
) -> None:
    record = log_fixture("openai_chat").records[1]
    take_in([record | {"metadata": {"plan": "pro"}}])
    report = take_in([record])
    assert (report.kept, report.duplicate) == (1, 0)
    assert len(stored("interactions")) == 1 and len(stored("feedback")) == 2


@pytest.mark.parametrize("fmt", ["openai_chat", "openai_responses", "nvidia_flywheel"])
def test_a_cell_may_hold_a_request_a_response_or_a_list_as_json_text(fmt: str, log_fixture: Any) -> None:
    tried = 0
    for record in log_fixture(fmt).records:
        if not isinstance(record, dict) or not {"request", "messages"} & record.keys():
            continue
        lists = record.keys() if "request" in record else {"messages", "choices", "tools", "usage", "metadata"}
        cells = {
            key: json.dumps(value) if key in lists and isinstance(value, dict | list) else value
            for key, value in record.items()
        }
        assert detect(cells).name == detect(record).name
        try:
            expected = named(fmt).records(record, CONTEXT)
        except (BadRecord, SkippedRecord):
            continue
        assert named(fmt).records(cells, CONTEXT) == expected
        tried += 1
    assert tried >= 2


def test_a_json_answer_in_a_text_stays_the_text_that_it_was() -> None:
    call, _ = parse("openai_chat", {"messages": [USER], "response": '{"queue": "sales"}'})
    assert call.choices[0].message["content"] == '{"queue": "sales"}'


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"thumb": "up"}, [("thumb", True)]),
        ({"feedback": "negative"}, [("thumb", False)]),
        ({"feedback": "Not bad at all"}, [("comment", None)]),
        ({"thumb": "not bad"}, []),
        ({"thumb": "green"}, []),
        ({"correction": " "}, []),
        ({"label": "x", "rating": "1"}, []),
        ({"thumb": ["up"], "correction": 4}, []),
    ],
)
def test_only_a_plain_verdict_in_metadata_is_feedback(metadata: dict[str, Any], said: list[Any]) -> None:
    record = {"id": "c", "messages": [USER], "choices": [{"message": {"content": "A"}}], "metadata": metadata}
    assert [(one.kind, one.value) for one in parse("openai_chat", record)[1]] == said


def test_a_failed_call_is_kept_as_one_also_when_its_stream_broke_off() -> None:
    record = {"request": {"messages": [USER]}, "response": {"error": {"code": 500}}}
    assert (parse("openai_chat", record)[0].status, parse("openai_chat", record)[0].choices) == ("error", [])
    stream = [{"id": "c", "choices": [{"delta": {"content": "Hel"}}]}, {"error": {"code": 500}}]
    call, _ = parse("openai_chat", {"messages": [USER], "response": stream})
    assert (call.status, call.choices[0].message["content"], call.stream) == ("error", "Hel", True)


def test_a_stored_completion_keeps_its_parameters_and_no_other_field_becomes_one(log_fixture: Any) -> None:
    call, _ = parse("openai_chat", log_fixture("openai_chat").records[1])
    assert call.params == {"seed": 7, "temperature": 0.5}


@pytest.mark.parametrize(
    ("weights", "answer"), [((1, 0), "first"), ((0, 1), "second"), (("0", None), "second"), ((None, 0.0), "first")]
)
def test_the_answer_of_a_fine_tuning_row_is_the_last_one_that_trains(weights: tuple[Any, Any], answer: str) -> None:
    rows = [
        item
        for text, weight in zip(("first", "second"), weights, strict=True)
        for item in (USER, {"role": "assistant", "content": text} | ({} if weight is None else {"weight": weight}))
    ]
    call, _ = parse("openai_chat", {"messages": rows})
    assert call.choices[0].message == {"role": "assistant", "content": answer}
    assert len(call.messages) == (1 if answer == "first" else 3)
    assert not any("weight" in message for message in call.messages)


def pair(better: Any, worse: Any, **fields: Any) -> dict[str, Any]:
    return {"input": {"messages": [USER]}, "preferred_output": better, "non_preferred_output": worse, **fields}


@pytest.mark.parametrize("shape", [lambda text: [{"role": "assistant", "content": text}], lambda text: text])
def test_a_preference_row_is_a_call_with_both_answers_and_the_preference(shape: Any) -> None:
    call, (said,) = parse("openai_preference", pair(shape("Good"), shape("Bad")))
    assert [choice.message["content"] for choice in call.choices] == ["Good", "Bad"]
    assert (said.kind, said.value) == ("preference", {"chosen": "Good", "rejected": "Bad"})
    assert (said.target_kind, said.target) == ("interaction", call.call_id)


def test_the_same_pair_has_the_same_id_and_the_reverse_pair_another() -> None:
    ids = [parse("openai_preference", pair(*sides))[0].call_id for sides in (("a", "b"), ("a", "b"), ("b", "a"))]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("record", "error", "reason"),
    [
        (pair("a", "a"), SkippedRecord, "equal answers"),
        (pair(["a", "b"], "a"), BadRecord, "not one message"),
        (pair("", "a"), BadRecord, "not an assistant's answer"),
        (pair([USER], "a"), BadRecord, "not an assistant's answer"),
        (pair(None, "a"), BadRecord, "a message is not an object"),
        (pair("a", "b", input="Hi"), BadRecord, "no messages"),
    ],
)
def test_a_pair_that_says_nothing_is_refused_with_its_reason(
    record: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        parse("openai_preference", record)


def response(output: Any, **fields: Any) -> dict[str, Any]:
    return {"object": "response", "id": "r1", "status": "completed", "input": "Hi", "output": output, **fields}


def said(*parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(parts)}


TEXT = {"type": "output_text", "text": "Hello"}


def test_one_turn_of_the_assistant_is_one_message_and_the_next_turn_another() -> None:
    items = [
        USER,
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        said(TEXT),
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{ }"},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1"}]},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        said(TEXT),
        said(TEXT),
    ]
    call, _ = parse("openai_responses", response([said(TEXT)], input=items))
    assert [message["role"] for message in call.messages] == [
        *("user", "assistant", "tool", "tool"),
        *("assistant", "assistant"),
    ]
    turn = call.messages[1]
    assert (turn["content"], turn["reasoning_content"]) == ("Hello", "Hm.")
    assert [one["function"]["arguments"] for one in turn["tool_calls"]] == ["{ }", "{}"]
    assert call.messages[2]["content"] == '[{"type": "input_text", "text": "1"}]'


def test_parts_that_are_no_text_stay_and_a_custom_tool_call_stays_custom() -> None:
    file = {"type": "input_file", "file_id": "f1"}
    custom = {"type": "custom_tool_call", "call_id": "a", "name": "sql", "input": "SELECT 1"}
    items = [{"role": "user", "content": [file]}, custom]
    call, _ = parse("openai_responses", response([said(TEXT, TEXT)], input=items))
    assert call.messages[0]["content"] == [file]
    assert call.messages[1]["tool_calls"] == [
        {"id": "a", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    ]
    assert call.choices[0].message["content"] == "HelloHello"
    assert "openai_ran_tools" not in call.metadata


@pytest.mark.parametrize(
    ("record", "error", "reason"),
    [
        (response([said(TEXT)], status="in_progress"), SkippedRecord, "not finished"),
        (response([]), BadRecord, "no answer"),
        (response([{"type": "reasoning"}]), BadRecord, "no answer"),
        (response(None), BadRecord, "no output"),
        (response([5]), BadRecord, "no output"),
        (response([said({"type": "output_text", "text": 5})]), BadRecord, "a text is not a string"),
        (response([said(TEXT)], input=[]), BadRecord, "no messages"),
        (response([said(TEXT)], input=None), BadRecord, "no messages"),
        (response([said(TEXT)], input=["Hi"]), BadRecord, "an input item is not an object"),
        (response([said(TEXT)], input=[{"type": "item_reference", "id": "x"}]), BadRecord, "does not hold"),
        ({"request": {"input": "Hi"}, "response": "Hello"}, BadRecord, "the response is not an object"),
        ({"request": {"input": "Hi"}, "response": {"object": "list", "data": []}}, SkippedRecord, "not a model call"),
    ],
)
def test_a_response_that_is_no_whole_call_is_refused_with_its_reason(
    record: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        parse("openai_responses", record)


@given(data=st.data())
def test_fields_that_are_not_mapped_change_nothing(family: Any, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(family.records) - 1))
    record = json.loads(json.dumps(family.padded(data, family.records[place])))
    noise = ("request_id", "service_tier", "system_fingerprint", "background", "truncation")
    record |= {key: data.draw(st.text(max_size=3)) for key in noise if key in record}
    assert family.read(record) == family.golden[place]
