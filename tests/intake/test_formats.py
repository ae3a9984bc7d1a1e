"""Log formats: what a record of each becomes, and why it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from flywheel.errors import IntakeError
from flywheel.intake.detect import detect
from flywheel.intake.formats import named
from flywheel.intake.records import BadRecord, Context, FeedbackRecord, InteractionRecord, SkippedRecord

CONTEXT = Context("router", frozenset({"router", "writer"}))
USER = {"role": "user", "content": "Where is it?"}


def parse(record: dict[str, Any]) -> InteractionRecord:
    found = detect(record).parse(record, CONTEXT)
    assert isinstance(found, InteractionRecord)
    return found


def nvidia(**fields: Any) -> dict[str, Any]:
    call = {"id": "t1", "type": "function", "function": {"name": "track", "arguments": {"id": "42", "a": 1}}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    tool = {"type": "function", "function": {"name": "track", "parameters": {}}}
    return {
        "timestamp": 1764500000,
        "workload_id": "shop-router",
        "client_id": "shop",
        "request": {"model": "m", "messages": [USER], "tools": [tool], "temperature": 0.2},
        "response": {
            "id": "c1",
            "model": "m-7",
            "choices": [{"index": "0", "finish_reason": "stop", "message": message}],
        },
        **fields,
    }


def test_a_record_is_detected_by_its_keys() -> None:
    assert detect(nvidia()).name == "nvidia_flywheel"
    assert detect({"request": {}, "response": {}}).name == "openai_chat"


def test_an_unknown_format_name_lists_the_known_ones() -> None:
    with pytest.raises(IntakeError, match="known: auto, gateway"):
        named("csv")


def test_a_record_of_no_known_format_is_refused() -> None:
    with pytest.raises(BadRecord, match="no known log format"):
        detect({"observation": 1})


def test_an_nvidia_record_keeps_tools_parameters_and_model_and_writes_arguments_as_text() -> None:
    found = parse(nvidia())
    assert found.call_id == "c1" and found.ts == 1764500000
    assert (found.model, found.release) == ("m", "m-7")
    assert found.params == {"temperature": 0.2}
    assert found.tools is not None and len(found.tools) == 1
    answer = found.choices[0].message
    assert answer["content"] == ""
    assert answer["tool_calls"][0]["function"]["arguments"] == '{"a":1,"id":"42"}'
    assert found.metadata == {"workload_id": "shop-router", "client_id": "shop"}


def test_an_nvidia_workload_that_is_another_task_of_ours_is_skipped() -> None:
    with pytest.raises(SkippedRecord, match="other task"):
        parse(nvidia(workload_id="writer"))


def test_an_nvidia_record_with_an_error_and_no_answer_is_a_failed_call() -> None:
    found = parse(nvidia(response=None, error_details={"code": 500}))
    assert (found.status, found.choices) == ("error", [])


def test_an_openai_pair_is_a_call_with_its_user_and_conversation() -> None:
    record = {
        "request": {"model": "m", "messages": [USER], "user": "u1", "metadata": {"conversation_id": "k7"}},
        "response": {
            "id": "c1",
            "created": 1764500000,
            "choices": [
                {"index": 1, "message": {"role": "assistant", "content": "B"}},
                {"index": 0, "message": {"content": "A"}},
            ],
        },
    }
    found = parse(record)
    assert (found.user, found.conversation_id, found.ts) == ("u1", "k7", 1764500000)
    assert [choice.message["content"] for choice in found.choices] == ["A", "B"]


@pytest.mark.parametrize(
    "answer",
    [
        {"response": "Here."},
        {"response": {"role": "assistant", "content": "Here."}},
        {"response": {"choices": [{"message": {"role": "assistant", "content": "Here."}}]}},
        {"choices": [{"message": {"role": "assistant", "content": "Here."}}]},
    ],
)
def test_a_stored_completion_beside_its_messages_is_a_call(answer: dict[str, Any]) -> None:
    assert parse({"messages": [USER], **answer}).choices[0].message == {"role": "assistant", "content": "Here."}


def test_a_fine_tuning_row_answers_with_its_last_assistant_message() -> None:
    rows = [
        USER,
        {"role": "assistant", "content": "5", "weight": 0},
        USER,
        {"role": "assistant", "content": "4", "weight": 1},
    ]
    found = parse({"messages": rows})
    assert found.choices[0].message == {"role": "assistant", "content": "4"}
    assert [message["content"] for message in found.messages] == ["Where is it?", "5", "Where is it?"]
    assert all("weight" not in message for message in found.messages)


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        ({"messages": [USER, {"role": "assistant", "content": "5", "weight": 0}]}, "answer with weight 0"),
        ({"input": {"messages": [USER]}, "preferred_output": "A", "non_preferred_output": "A"}, "equal answers"),
    ],
)
def test_rows_that_must_not_be_learned_are_skipped(record: dict[str, Any], rule: str) -> None:
    with pytest.raises(SkippedRecord, match=rule):
        parse(record)


def test_images_beside_the_text_of_a_stored_message_are_kept() -> None:
    parts = [{"type": "text", "text": "this"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    found = parse({"messages": [{"role": "user", "content": None, "content_parts": parts, "id": "m"}], "response": "A"})
    assert found.messages == [{"role": "user", "content": parts}]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"messages": [], "response": "A"}, "no messages"),
        ({"messages": "hi", "response": "A"}, "no messages"),
        ({"messages": ["hi"], "response": "A"}, "a message is not an object"),
        ({"messages": [{"content": "hi"}], "response": "A"}, "a message has no role"),
        ({"messages": [{"role": "user", "content": 5}], "response": "A"}, "neither text nor parts"),
        ({"messages": [{"role": "user", "tool_calls": {}}], "response": "A"}, "tool_calls is not a list"),
        ({"messages": [USER], "response": None}, "no answer"),
        ({"messages": [USER], "choices": []}, "no choices"),
        ({"messages": [USER], "choices": [{}]}, "a choice has no message"),
        ({"messages": [USER], "choices": [{"index": 0, "message": {}}] * 2}, "same index"),
        ({"messages": [USER], "response": "A", "id": "x" * 121}, "an id is too long"),
        ({"messages": [USER], "choices": [{"message": {}}], "id": "x" * 121}, "an id is too long"),
        ({"messages": [USER]}, "no assistant answer"),
        ({"messages": [{"role": "assistant", "content": "A"}]}, "no assistant answer"),
        ({"request": {"messages": [USER]}, "response": "A"}, "the response is not an object"),
        ({"object": "chat.completion", "choices": [{"message": {}}]}, "no messages"),
    ],
)
def test_a_record_that_is_no_whole_call_is_refused_with_its_reason(record: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        parse(record)


def feedback(kind: str, value: Any = None, text: Any = None, **fields: Any) -> FeedbackRecord:
    record = {
        "v": 1,
        "kind": "feedback",
        "id": "fb-1",
        "task": "router",
        "target": {"kind": "interaction", "id": "c1"},
        "feedback": {"kind": kind, "value": value, "text": text},
        "source": "user",
        **fields,
    }
    found = named("gateway").parse(record, CONTEXT)
    assert isinstance(found, FeedbackRecord)
    return found


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("thumb", "up", True),
        ("thumb", "Down", False),
        ("thumb", 1, True),
        ("outcome", False, False),
        ("rating", "4.5", 4.5),
        ("label", 7, 7),
    ],
)
def test_a_feedback_value_is_stored_in_one_spelling(kind: str, value: Any, stored: Any) -> None:
    assert feedback(kind, value).value == stored


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"kind": "thumb", "value": "sideways"}, "the thumb is neither true nor false"),
        ({"kind": "outcome", "value": None}, "the outcome is neither"),
        ({"kind": "rating", "value": "high"}, "the rating is not a number"),
        ({"kind": "correction", "text": " "}, "the correction has no text"),
        ({"kind": "shrug"}, "unknown feedback kind"),
        ({"kind": ["thumb"]}, "unknown feedback kind"),
        ({"kind": "thumb", "value": True, "source": "boss"}, "unknown feedback source"),
        ({"kind": "thumb", "value": True, "target": {"kind": "metadata", "key": "k"}}, "unknown feedback target"),
        ({"kind": "thumb", "value": True, "target": {"kind": "interaction"}}, "has no id"),
        ({"kind": "thumb", "value": True, "id": None}, "no id"),
        ({"kind": "thumb", "value": True, "v": 2}, "unknown log version"),
    ],
)
def test_feedback_that_says_nothing_usable_is_refused_with_its_reason(record: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        feedback(**record)


def test_calls_of_other_tasks_are_skipped_and_feedback_without_a_task_is_not() -> None:
    with pytest.raises(SkippedRecord, match="other task"):
        feedback("thumb", True, task="writer")
    assert feedback("thumb", True, task="").kind == "thumb"
    with pytest.raises(SkippedRecord, match="other task"):
        named("gateway").parse({"v": 1, "kind": "interaction", "task": ""}, CONTEXT)
