"""Tool calls, content parts and users, in every format: kept to the letter, marked, and keyed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flywheel.config_logs import ColumnMap
from flywheel.intake.formats import FORMATS, chat, columns_format
from flywheel.intake.marks import NOT_TEXT, PARTS
from flywheel.intake.records import Context, InteractionRecord

NAMES = sorted(FORMATS)
CONTEXT = Context("support_router", frozenset({"support_router"}))

ARGUMENTS = [
    '{ "id" :\n\t"42" }',
    '{"a":1, "a" :2}',
    '{"city":"Zürich ☕"}',
    r'{"city":"Z\u00fcrich","half":"\ud83d"}',
    '{"n":1.10,"m":1e5,"big":123456789012345678901234567890}',
    '{"nan": NaN}',
    '{"broken": ',
    "<find>42</find>",
    '"text"',
    "",
]


def messages(found: list[Any]) -> list[Any]:
    """All messages of a call, the answers last."""
    call = found[0]
    return [*call["messages"], *(choice["message"] for choice in call["choices"])]


@pytest.mark.parametrize("fmt", NAMES)
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_the_arguments_of_a_tool_call_stay_the_text_they_were_beside_the_words(
    log_fixture: Any, call_class: Any, fmt: str, arguments: str
) -> None:
    found = messages(log_fixture(fmt).read(call_class(arguments=arguments).written(fmt)))
    (called,) = [call for message in found for call in message.get("tool_calls", ())]
    assert called == {"id": "t1", "type": "function", "function": {"name": "find", "arguments": arguments}}
    assert any(message["role"] == "assistant" and message["content"] == "delivery" for message in found)


@pytest.mark.parametrize("fmt", NAMES)
def test_no_key_that_is_missing_becomes_null(log_fixture: Any, call_class: Any, fmt: str) -> None:
    assert "null" not in json.dumps(messages(log_fixture(fmt).read(call_class(arguments="{}").written(fmt))))


def test_arguments_that_a_log_holds_parsed_become_text_also_in_the_old_function_call() -> None:
    old = chat.message({"role": "assistant", "function_call": {"name": "find", "arguments": {"b": 1, "a": None}}})
    assert old["function_call"] == {"name": "find", "arguments": '{"a":null,"b":1}'}
    missing = {"id": "t", "type": "function", "function": {"name": "find"}}
    assert chat.message({"role": "assistant", "tool_calls": [missing]})["tool_calls"] == [missing]


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
PARTS_OF: dict[str, tuple[Any, Any]] = {
    "openai_responses": ({"type": "input_image", "image_url": IMAGE["image_url"]["url"]}, IMAGE),  # type: ignore[index]
    "otel": ({"type": "blob", "modality": "image", "content": "AA=="},) * 2,
    "tensorzero": ({"type": "file", "file": {"url": "https://example.org/a.png", "mime_type": "image/png"}},) * 2,
}


@pytest.mark.parametrize("fmt", NAMES)
def test_a_part_that_is_no_text_is_kept_and_marked_in_its_row_and_in_the_report(
    call_class: Any, take_in: Any, stored: Any, fmt: str
) -> None:
    written, kept = PARTS_OF.get(fmt, (IMAGE, IMAGE))
    plain = call_class(id="plain", talk="plain")
    report = take_in([call_class(parts=(written,)).written(fmt), plain.written(fmt)], fmt=fmt)
    assert (report.kept, report.reasons) == (2, {NOT_TEXT: 1})
    rows = {row["interaction_id"]: row for row in stored("interactions")}
    content = json.loads(rows["call-1"]["request"])["messages"][0]["content"]
    assert content == [{"type": "text", "text": "Where is it?"}, kept]
    assert json.loads(rows["call-1"]["metadata"])[PARTS] == [kept["type"]]
    assert PARTS not in json.loads(rows["plain"]["metadata"])


def test_an_answer_that_was_spoken_is_kept_and_marked(take_in: Any, stored: Any) -> None:
    audio = {"id": "audio_1", "data": "AA==", "transcript": "Hello."}
    message = {"role": "assistant", "content": None, "audio": audio}
    record = {"messages": [{"role": "user", "content": "Hi"}], "id": "c", "choices": [{"message": message}]}
    assert take_in([record]).reasons[NOT_TEXT] == 1
    (row,) = stored("interactions")
    assert json.loads(row["response"])["message"] == {"role": "assistant", "content": "", "audio": audio}


@pytest.mark.parametrize("fmt", [name for name in NAMES if name != "openai_preference"])
def test_the_users_id_may_be_a_number_and_reaches_no_table_as_it_is(
    call_class: Any, deployment: Any, take_in: Any, stored: Any, fmt: str
) -> None:
    raw: Any = "mallory@example.org"
    numbered = 4711 if fmt != "gateway" else "4711"  # our own gateway writes texts
    calls = [call_class(id=f"c{place}", user=user) for place, user in enumerate((raw, numbered))]
    assert take_in([call.written(fmt) for call in calls], fmt=fmt).kept == 2
    rows = stored("interactions")
    assert [row["user_key"] for row in rows] == [deployment.home.user_key(user) for user in (raw, "4711")]
    assert raw not in str(rows)


def test_the_user_of_a_table_may_be_a_number() -> None:
    columns = ColumnMap.model_validate({"prompt": "asked", "completion": "said", "user": "who"})
    (call,) = columns_format(columns).records({"asked": "Hi", "said": "Hello", "who": 4711}, CONTEXT)
    assert isinstance(call, InteractionRecord) and call.user == "4711"


def test_the_safety_identifier_of_a_request_is_its_user_and_no_parameter(log_fixture: Any, call_class: Any) -> None:
    for fmt in ("openai_chat", "openai_responses", "nvidia_flywheel"):
        record = call_class(user=None).written(fmt)
        record["request"] |= {"safety_identifier": "mallory", "temperature": 0.5}
        call = log_fixture(fmt).read(record)[0]
        assert (call["user"], call["params"]) == ("mallory", {"temperature": 0.5})


@pytest.mark.parametrize(
    "text",
    ['[{"role": "user", "content": "Where', '{"messages": [{"role": "user"', '[{"role":"user","content":NaN}]'],
)
def test_a_chat_in_a_text_that_was_cut_is_no_question_of_the_user(log_fixture: Any, call_class: Any, text: str) -> None:
    reason = "the input looks like a chat but is not JSON; it may have been cut"
    assert log_fixture("langfuse").read(call_class().written("langfuse") | {"input": text}) == {"quarantined": reason}
    for fine in ("[1, 2", "{what} is it?", '{"question": "Where'):
        found = log_fixture("langfuse").read(call_class().written("langfuse") | {"input": fine})
        assert found[0]["messages"] == [{"role": "user", "content": fine}]
