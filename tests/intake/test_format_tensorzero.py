"""TensorZero's tables: calls, and feedback on an inference or an episode that no row tells apart."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.formats import named
from flywheel.intake.records import BadRecord, Context, FeedbackRecord, InteractionRecord, SkippedRecord

CONTEXT = Context("support_router", frozenset({"support_router", "writer"}))
ID = "01a1968d-3900-7001-8000-000000000001"
EPISODE = "01a1968d-3900-7384-8000-000000000384"


@pytest.fixture
def tensorzero(log_fixture: Any) -> Any:
    return log_fixture("tensorzero")


def read(record: dict[str, Any]) -> Any:
    (found,) = named("tensorzero").records(record, CONTEXT)
    return found


def call(row: dict[str, Any], **fields: Any) -> InteractionRecord:
    found = read({**row, **fields})
    assert isinstance(found, InteractionRecord)
    return found


def metric(name: str, value: Any, **fields: Any) -> FeedbackRecord:
    found = read({"id": "f", "target_id": ID, "metric_name": name, "value": value, "tags": {}, **fields})
    assert isinstance(found, FeedbackRecord)
    return found


def demonstration(value: Any, **fields: Any) -> FeedbackRecord:
    found = read({"id": "f", "inference_id": ID, "value": value, **fields})
    assert isinstance(found, FeedbackRecord)
    return found


def test_an_import_reconciles_and_repeats_nothing(tensorzero: Any, take_in: Any, stored: Any) -> None:
    report = take_in(tensorzero.records)
    assert (report.read, report.kept, report.quarantined, report.skipped) == (19, 15, 2, 2)
    assert len(stored("interactions")) == 4 and len(stored("feedback")) == 10
    (waiting,) = stored("orphans")
    assert waiting["target_kind"] == "either"
    again = take_in(tensorzero.records)
    assert (again.kept, again.duplicate) == (0, 15)


@pytest.mark.parametrize("feedback_first", [False, True])
def test_a_metric_finds_the_inference_or_the_episode_that_its_id_is(
    tensorzero: Any, take_in: Any, stored: Any, feedback_first: bool
) -> None:
    about = [
        {"id": f"f-{target}", "target_id": target, "metric_name": "good", "value": True} for target in (ID, EPISODE)
    ]
    for records in (about, tensorzero.records[:2]) if feedback_first else (tensorzero.records[:2], about):
        take_in(records)
    found = {(row["target_kind"], row["target_id"]) for row in stored("feedback")}
    assert found == {("interaction", ID), ("conversation", EPISODE)}
    assert not stored("orphans")
    assert take_in(about).duplicate == 2


def test_a_time_that_was_left_out_is_read_from_the_id(tensorzero: Any, take_in: Any, stored: Any) -> None:
    row = {key: value for key, value in tensorzero.records[0].items() if key != "timestamp"}
    assert call(row).ts == 1793527200000
    assert call(row, timestamp="2026-11-01 10:00:07").ts == "2026-11-01 10:00:07"
    assert call(row, id="00000000-0000-4000-8000-000000000000").ts is None
    assert call(row, id="no uuid").ts is None
    take_in([row])
    (stored_row,) = stored("interactions")
    assert stored_row["ts_quality"] == "ok" and stored_row["ts"] == datetime(2026, 11, 1, 10, tzinfo=UTC)


def test_raw_arguments_are_the_models_own_text_and_count_before_parsed_ones(tensorzero: Any) -> None:
    block = {"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": 1}, "raw_arguments": '{ "a": 1}'}
    (found,) = call(tensorzero.records[0], output=json.dumps([block])).choices
    assert found.message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{ "a": 1}'}


def test_a_json_answer_is_its_raw_text(tensorzero: Any) -> None:
    row = tensorzero.records[2]
    assert call(row).choices[0].message["content"] == '{"order": 42, "boxes": 2}'
    assert call(row, output={"raw": None, "parsed": {"a": "é"}}).choices[0].message["content"] == '{"a": "é"}'
    assert call(row, output={"raw": "not JSON", "parsed": None}).choices[0].message["content"] == "not JSON"


@pytest.mark.parametrize(
    ("name", "value", "kind", "stored_value"),
    [
        ("task_success", True, "outcome", True),
        ("thumbs_up", False, "thumb", False),
        ("hallucinated", True, "comment", {"name": "hallucinated", "value": True}),
        ("similarity", 1.0, "rating", {"name": "similarity", "value": 1.0}),
        ("stars", 5, "rating", {"value": 5, "scale": [1, 5]}),
    ],
)
def test_a_metric_says_what_its_name_tells_and_a_float_has_no_scale(
    name: str, value: Any, kind: str, stored_value: Any
) -> None:
    found = metric(name, value)
    assert (found.kind, found.value, found.source, found.target_kind) == (kind, stored_value, "user", "either")


def test_an_evaluators_metric_is_a_judges_and_a_human_check_of_it_a_reviewers() -> None:
    name = "tensorzero::evaluation_name::e::evaluator_name::correct"
    assert (metric(name, True).source, metric(name, True).author) == ("judge", "correct")
    tags = {"tensorzero::human_feedback": "true", "author": "rita"}
    assert (metric(name, True, tags=tags).source, metric(name, True, tags=tags).author) == ("reviewer", "rita")
    assert metric("correct", True, tags={"tensorzero::evaluator_inference_id": "x"}).source == "judge"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('[{"type":"text","text":"Ship Monday"}]', "Ship Monday"),
        ([{"type": "text", "text": "Ship "}, {"type": "text", "text": "Monday"}], "Ship Monday"),
        ('{"raw": "{ \\"a\\": 1 }", "parsed": {"a": 1}}', '{ "a": 1 }'),
        ('{"a": 1}', '{"a": 1}'),
        ("Ship Monday", "Ship Monday"),
    ],
)
def test_a_demonstration_is_a_correction_with_its_text(value: Any, text: str) -> None:
    found = demonstration(value)
    assert (found.kind, found.text, found.value) == ("correction", text, None)
    assert (found.target_kind, found.target) == ("interaction", ID)


def test_a_demonstration_with_tool_calls_is_no_text() -> None:
    blocks = [{"type": "text", "text": "Wait."}, {"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}]
    found = demonstration(json.dumps(blocks))
    assert found.text == ""
    assert found.value["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("fields", "error", "reason"),
    [
        ({"tags": {"tensorzero::evaluation_run_id": "x"}}, SkippedRecord, "evaluation run"),
        ({"function_name": "tensorzero::llm_judge::e::x"}, SkippedRecord, "evaluation run"),
        ({"function_name": "writer"}, SkippedRecord, "other task"),
        ({"id": None}, BadRecord, "no id"),
        ({"input": "plain"}, BadRecord, "the input is not an object"),
        ({"input": {"messages": []}}, BadRecord, "no messages"),
        ({"input": {"messages": ["hi"]}}, BadRecord, "a message is not an object"),
        ({"input": {"messages": [{"role": "user", "content": ["hi"]}]}}, BadRecord, "a content block"),
        ({"output": None}, BadRecord, "neither content blocks"),
        ({"output": "[]"}, BadRecord, "no answer"),
        ({"output": [{"type": "thought", "text": "Hm"}]}, BadRecord, "no answer"),
        ({"output": [{"type": "tool_call", "id": "c"}]}, BadRecord, "a tool call has no name"),
    ],
)
def test_what_is_no_whole_call_is_refused_with_its_reason(
    tensorzero: Any, fields: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        call(tensorzero.records[0], **fields)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"table": "FloatMetricFeedback", "id": "f", "target_id": ID, "value": "high"}, "not a number"),
        ({"table": "BooleanMetricFeedback", "id": "f", "target_id": ID, "value": 2}, "neither true nor false"),
        ({"table": "CommentFeedback", "id": "f", "target_id": ID, "value": " "}, "the comment has no text"),
        ({"table": "DemonstrationFeedback", "id": "f", "inference_id": ID, "value": ""}, "has no text"),
        ({"table": "BooleanMetricFeedback", "id": "f", "value": True}, "target has no id"),
        ({"table": "BooleanMetricFeedback", "target_id": ID, "value": True}, "no id"),
    ],
)
def test_feedback_that_says_nothing_is_refused_with_its_reason(record: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        read(record)


@given(data=st.data())
def test_fields_that_are_not_mapped_change_nothing(tensorzero: Any, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(tensorzero.records) - 1))
    record = tensorzero.padded(data, tensorzero.records[place]) | {"snapshot_hash": data.draw(st.text(max_size=3))}
    record |= {key: data.draw(st.text(max_size=3)) for key in ("extra_body", "auxiliary_content") if key in record}
    assert tensorzero.read(record) == tensorzero.golden[place]
