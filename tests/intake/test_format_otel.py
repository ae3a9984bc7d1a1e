"""OpenTelemetry: spans, exports and log records in the conventions of today and of yesterday."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.formats import named
from flywheel.intake.orphans import metadata_key
from flywheel.intake.records import BadRecord, Context, Dropped, FeedbackRecord, InteractionRecord, SkippedRecord

CONTEXT = Context("support_router", frozenset({"support_router", "writer"}))
START = 1793527200000000000
IN = [{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]
OUT = [{"role": "assistant", "parts": [{"type": "text", "content": "Hello"}]}]
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}


@pytest.fixture
def otel(log_fixture: Any) -> Any:
    return log_fixture("otel")


def span(attributes: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    content = {"gen_ai.input.messages": IN, "gen_ai.output.messages": OUT}
    own = {"traceId": "t1", "spanId": "s1", "startTimeUnixNano": str(START)}
    return {"name": "chat m", **own, "attributes": {**CHAT, **content, **(attributes or {})}, **fields}


def records(record: dict[str, Any]) -> list[Any]:
    return list(named("otel").records(record, CONTEXT))


def call(record: dict[str, Any]) -> InteractionRecord:
    (found,) = records(record)
    assert isinstance(found, InteractionRecord)
    return found


def evaluation(name: str, **score: Any) -> dict[str, Any]:
    said = {f"gen_ai.evaluation.score.{key}": value for key, value in score.items() if key in ("value", "label")}
    rest = {key: value for key, value in score.items() if key not in ("value", "label")}
    return {"name": "gen_ai.evaluation.result", "attributes": {"gen_ai.evaluation.name": name, **said, **rest}}


def judged(**fields: Any) -> FeedbackRecord:
    *_, found = records(span(events=[evaluation(**fields)]))
    assert isinstance(found, FeedbackRecord)
    return found


def typed(value: Any) -> Any:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [typed(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": pairs(value)}}
    return {"stringValue": value}


def pairs(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": typed(value)} for key, value in values.items()]


def snake(value: Any) -> Any:
    """Keys of the envelope as protobuf's own names."""
    if isinstance(value, list):
        return [snake(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {name: "".join(f"_{c.lower()}" if c.isupper() else c for c in name) for name in value}
    return {names[name]: snake(item) for name, item in value.items()}


def test_an_import_reconciles_joins_its_feedback_and_repeats_nothing(otel: Any, take_in: Any, stored: Any) -> None:
    report = take_in(otel.records)
    assert (report.read, report.kept, report.quarantined, report.skipped) == (21, 17, 1, 3)
    assert report.reasons["part dropped: a message's parts are not a list"] == 1
    said = {(row["kind"], row["target_kind"], row["target_id"]) for row in stored("feedback")}
    assert said == {
        ("thumb", "interaction", "chatcmpl-otel-1"),
        ("rating", "interaction", "chatcmpl-otel-1"),
        ("thumb", "interaction", f"{3:032x}-{31:016x}"),
        ("outcome", "conversation", "talk-4"),
        ("thumb", "interaction", "chatcmpl-otel-3"),
        ("thumb", "interaction", "chatcmpl-otel-13"),
    }
    assert not stored("orphans")
    again = take_in(otel.records)
    assert (again.kept, again.duplicate) == (0, 17)


def test_the_feedback_may_come_first(otel: Any, take_in: Any, stored: Any) -> None:
    take_in(otel.records[::-1])
    assert len(stored("feedback")) == 7 and not stored("orphans")


@pytest.mark.parametrize("shape", ["plain", "typed", "snake", "JSON text"])
def test_attributes_in_every_form_say_the_same(shape: str) -> None:
    plain = span({"gen_ai.usage.input_tokens": 7, "gen_ai.request.temperature": 0.5, "gen_ai.request.stream": True})
    row = json.loads(json.dumps(plain))
    if shape == "JSON text":
        row["attributes"] |= {key: json.dumps(row["attributes"][key]) for key in row["attributes"] if "messages" in key}
    if shape in ("typed", "snake"):
        row["attributes"] = pairs(row["attributes"])
        row = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [row]}]}]}
    assert call(snake(row) if shape == "snake" else row) == call(plain)
    assert (call(plain).usage, call(plain).params, call(plain).stream) == (
        {"prompt_tokens": 7},
        {"temperature": 0.5},
        True,
    )


OLD_IN, OLD_OUT = [{"role": "user", "content": "Hi"}], {"role": "assistant", "content": "Hello"}


def event(name: str, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "attributes": attributes}


@pytest.mark.parametrize(
    ("attributes", "events"),
    [
        ({"gen_ai.input.messages": OLD_IN, "gen_ai.output.messages": [OLD_OUT]}, []),
        ({"gen_ai.prompt": json.dumps(OLD_IN), "gen_ai.completion": json.dumps([OLD_OUT])}, []),
        ({"gen_ai.prompt": "Hi", "gen_ai.completion": "Hello"}, []),
        (
            {
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": "Hi",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": "Hello",
            },
            [],
        ),
        ({}, [event("gen_ai.user.message", content="Hi"), event("gen_ai.choice", index=0, message="Hello")]),
        ({}, [event("gen_ai.user.message", content="Hi"), event("gen_ai.choice", message=json.dumps(OLD_OUT))]),
        (
            {},
            [
                event("gen_ai.user.message", event_body=json.dumps(OLD_IN[0])),
                event("gen_ai.choice", **{"gen_ai.event.content": json.dumps({"message": OLD_OUT})}),
            ],
        ),
        (
            {},
            [
                event("gen_ai.content.prompt", **{"gen_ai.prompt": json.dumps(OLD_IN)}),
                event("gen_ai.content.completion", **{"gen_ai.completion": json.dumps([OLD_OUT])}),
            ],
        ),
        (
            {},
            [
                event(
                    "gen_ai.client.inference.operation.details",
                    **{"gen_ai.input.messages": IN, "gen_ai.output.messages": json.dumps(OUT)},
                )
            ],
        ),
    ],
)
def test_every_convention_gives_the_same_call(attributes: dict[str, Any], events: list[Any]) -> None:
    row = span(events=events)
    row["attributes"] = {**CHAT, **attributes}
    assert (call(row).messages, call(row).choices) == (call(span()).messages, call(span()).choices)


def test_older_names_of_usage_provider_and_operation_are_read() -> None:
    old = {"gen_ai.system": "openai", "gen_ai.usage.prompt_tokens": 3, "gen_ai.usage.completion_tokens": 2}
    row = span({**old, "gen_ai.usage.cache_creation.input_tokens": 1})
    del row["attributes"]["gen_ai.operation.name"]
    found = call(row)
    assert found.usage == {"prompt_tokens": 3, "completion_tokens": 2, "cache_write.input_tokens": 1}
    assert found.metadata["otel_provider"] == "openai"


def test_parts_become_what_a_chat_request_holds() -> None:
    blob = {"type": "blob", "modality": "image", "content": "aGk="}
    parts = [{"type": "text", "content": "See"}, blob]
    turn = [
        {"type": "reasoning", "content": "Hm."},
        {"type": "tool_call", "id": "c", "name": "f", "arguments": '{ "a":1}'},
    ]
    answers = [
        {"type": "tool_call_response", "id": "c", "response": "1"},
        {"type": "tool_call_response", "id": "d", "result": {}},
    ]
    rows = [{"role": "user", "parts": parts}, {"role": "assistant", "parts": turn}, {"role": "tool", "parts": answers}]
    found = call(
        span({"gen_ai.input.messages": rows, "gen_ai.system_instructions": [{"type": "text", "content": "Be."}]})
    )
    assert found.messages == [
        {"role": "system", "content": "Be."},
        {"role": "user", "content": [{"type": "text", "text": "See"}, blob]},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{ "a":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "tool", "tool_call_id": "d", "content": "{}"},
    ]


def test_a_call_without_a_response_id_is_named_after_its_span() -> None:
    assert call(span()).call_id == "t1-s1"
    assert call(span({"gen_ai.response.id": "r1"})).call_id == "r1"
    assert call(span({"gen_ai.response.id": "r1"})).metadata == {"otel_trace_id": "t1", "otel_span_id": "s1"}
    bare = {"name": "chat", "attributes": span()["attributes"]}
    assert (call(bare).call_id, call(bare).conversation_id) == (None, None)


def test_an_error_is_a_failed_call_also_without_an_answer() -> None:
    for fields in (
        {"status": {"code": 2}},
        {"status": {"code": "STATUS_CODE_ERROR"}},
        {"status": {"status_code": "ERROR"}},
    ):
        row = span(**fields)
        del row["attributes"]["gen_ai.output.messages"]
        assert (call(row).status, call(row).choices) == ("error", [])
    assert call(span({"error.type": "timeout"})).status == "error"
    assert call(span(status={"code": 1})).status == "ok"


def test_the_times_of_every_exporter_are_read() -> None:
    end = {"endTimeUnixNano": str(START + 1_500_000_000)}
    assert (call(span(**end)).ts, call(span(**end)).latency_ms) == (str(START), 1500.0)
    iso = {
        "name": "c",
        "attributes": span()["attributes"],
        "start_time": "2026-11-01T10:00:00Z",
        "end_time": "2026-11-01T10:00:02Z",
    }
    assert call(iso).latency_ms == 2000.0
    pair = {
        "name": "c",
        "attributes": span()["attributes"],
        "startTime": [1793527200, 500],
        "endTime": [1793527201, 500],
    }
    assert (call(pair).ts, call(pair).latency_ms) == (START + 500, 1000.0)


@pytest.mark.parametrize(
    ("score", "kind", "value", "source"),
    [
        ({"name": "toxicity", "label": "pass"}, "thumb", True, "judge"),
        ({"name": "toxicity", "label": "Fail", "value": 1.0}, "thumb", False, "judge"),
        ({"name": "correctness", "label": "incorrect", "value": 0}, "thumb", False, "judge"),
        ({"name": "relevance", "label": "relevant"}, "comment", {"name": "relevance", "value": "relevant"}, "judge"),
        (
            {"name": "relevance", "label": "relevant", "value": 4.0},
            *("rating", {"name": "relevance", "value": 4.0, "label": "relevant"}, "judge"),
        ),
        ({"name": "groundedness", "value": 1.0}, "rating", {"name": "groundedness", "value": 1.0}, "judge"),
        ({"name": "thumb", "value": 1.0}, "thumb", True, "user"),
        ({"name": "user_thumb", "value": "-1"}, "thumb", False, "user"),
        ({"name": "resolved", "value": True}, "outcome", True, "judge"),
        ({"name": "expected", "label": "billing"}, "label", "billing", "judge"),
    ],
)
def test_an_evaluation_says_what_its_name_label_and_score_tell(
    score: dict[str, Any], kind: str, value: Any, source: str
) -> None:
    found = judged(**score)
    assert (found.kind, found.value, found.source) == (kind, value, source)
    assert (found.target_kind, found.target) == ("interaction", "t1-s1")


def test_an_evaluation_that_failed_says_nothing_and_one_with_words_only_is_a_comment() -> None:
    assert len(records(span(events=[evaluation("quality", **{"error.type": "timeout"})]))) == 1
    found = judged(name="quality", **{"gen_ai.evaluation.explanation": "Too long."})
    assert (found.kind, found.text) == ("comment", "Too long.")


AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "k"}
RESULT = {"gen_ai.evaluation.name": "helpful", "gen_ai.evaluation.score.value": True}


@pytest.mark.parametrize(
    ("record", "target"),
    [
        (span(events=[evaluation("helpful", value=True, **{"gen_ai.response.id": "r9"})]), ("interaction", "r9")),
        (
            {**span(events=[evaluation("helpful", value=True)]), "attributes": AGENT},
            ("conversation", "k"),
        ),
        (
            {
                **span(events=[evaluation("helpful", value=True)]),
                "attributes": {"gen_ai.operation.name": "invoke_agent"},
            },
            ("metadata", metadata_key("otel_trace_id", "t1")),
        ),
        (
            {"eventName": "gen_ai.evaluation.result", "attributes": RESULT, "traceId": "t1", "spanId": "s1"},
            ("metadata", metadata_key("otel_span_id", "s1")),
        ),
        (
            {"name": "gen_ai.evaluation.result", "attributes": RESULT, "spanId": "s2", "parentSpanId": "s1"},
            ("metadata", metadata_key("otel_span_id", "s1")),
        ),
        (
            {"body": None, "attributes": {**RESULT, "event.name": "gen_ai.evaluation.result", "session.id": "k"}},
            ("conversation", "k"),
        ),
    ],
)
def test_an_evaluation_is_about_what_it_names_or_hangs_on(record: dict[str, Any], target: tuple[str, str]) -> None:
    *_, found = records(record)
    assert (found.target_kind, found.target) == target


def test_log_records_of_one_span_are_one_call_and_those_of_another_are_not_mixed_in() -> None:
    def log(name: str, own: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"eventName": name, "traceId": "t", "spanId": own, "attributes": {}, "body": body}

    rows = [
        log("gen_ai.user.message", "a", {"content": "A?"}),
        log("gen_ai.user.message", "b", {"content": "B?"}),
        log("gen_ai.choice", "b", {"index": 0, "message": {"content": "B."}}),
        log("gen_ai.choice", "a", {"index": 0, "message": {"content": "A."}}),
    ]
    found = records({"resourceLogs": [{"scopeLogs": [{"logRecords": rows}]}]})
    assert [(one.messages[0]["content"], one.choices[0].message["content"]) for one in found] == [
        ("A?", "A."),
        ("B?", "B."),
    ]


def test_a_broken_span_does_not_cost_its_neighbours_and_is_counted(take_in: Any) -> None:
    rows = [span(spanId="s1"), span({"gen_ai.input.messages": "[{"}, spanId="s2"), span(spanId="s3")]
    line = {"resourceSpans": [{"scopeSpans": [{"spans": rows}]}]}
    first, second, dropped = records(line)
    assert (first.call_id, second.call_id) == ("t1-s1", "t1-s3")
    assert dropped == Dropped("the messages are not a list of objects; they may have been cut")
    report = take_in([line])
    assert (report.kept, report.reasons) == (1, {f"part dropped: {dropped.reason}": 1})


def without(*names: str) -> dict[str, Any]:
    row = span()
    for name in names:
        del row["attributes"][f"gen_ai.{name}.messages"]
    return row


@pytest.mark.parametrize(
    ("record", "error", "reason"),
    [
        (without("input", "output"), SkippedRecord, "recorded without its content"),
        (without("input"), BadRecord, "no messages"),
        (without("output"), BadRecord, "no answer"),
        (span({"gen_ai.operation.name": "embeddings"}), SkippedRecord, "no model call in it"),
        ({"resourceSpans": []}, SkippedRecord, "no model call in it"),
        ({"resourceSpans": ["x"]}, BadRecord, "a part of the export is not an object"),
        (span({"gen_ai.output.messages": [{"role": "assistant", "parts": []}]}), BadRecord, "no answer"),
        (span({"gen_ai.response.id": "x" * 121}), BadRecord, "an id is too long"),
    ],
)
def test_what_is_no_whole_call_is_refused_with_its_reason(
    record: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        records(record)


@given(data=st.data())
def test_fields_that_are_not_mapped_change_nothing(otel: Any, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(otel.records) - 1))
    assert otel.read(otel.padded(data, otel.records[place])) == otel.golden[place]
    row = span({"server.address": data.draw(st.text(max_size=3))}, kind=data.draw(st.integers()), links=[], flags=256)
    assert call(row) == call(span())
