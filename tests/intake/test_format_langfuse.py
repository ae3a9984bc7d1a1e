"""Langfuse exports: what generations and scores become, and how scores find what they are about."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.formats import named
from flywheel.intake.records import BadRecord, Context, FeedbackRecord, InteractionRecord, SkippedRecord

CONTEXT = Context("support_router", frozenset({"support_router", "writer"}))


@pytest.fixture
def langfuse(log_fixture: Any) -> Any:
    return log_fixture("langfuse")


def call(row: dict[str, Any]) -> InteractionRecord:
    (found,) = named("langfuse").records(row, CONTEXT)
    assert isinstance(found, InteractionRecord)
    return found


def score(**fields: Any) -> list[FeedbackRecord]:
    row = {"id": "s1", "timestamp": "2026-11-02 09:00:00", "trace_id": "t1", "observation_id": "o1", "name": "note"}
    row |= {"value": 0, "source": "API", "data_type": "NUMERIC", "string_value": None, "comment": None, **fields}
    found = named("langfuse").records(row, CONTEXT)
    return [one for one in found if isinstance(one, FeedbackRecord)]


def test_an_import_reconciles_joins_its_feedback_and_repeats_nothing(langfuse: Any, take_in: Any, stored: Any) -> None:
    report = take_in(langfuse.records)
    assert (report.read, report.kept, report.duplicate) == (23, 17, 0)
    assert (report.quarantined, report.skipped) == (2, 4)  # no task `writer` here
    assert {row["interaction_id"] for row in stored("interactions")} == {f"obs-{n}" for n in (1, 2, 3, 4, 5, 8, 20)}
    targets = {(row["kind"], row["target_kind"], row["target_id"]) for row in stored("feedback")}
    # Two generations share trace-3: the later one answers for it.
    assert ("thumb", "interaction", "obs-4") in targets and ("outcome", "interaction", "obs-1") in targets
    assert ("comment", "conversation", "session-9") in targets and ("thumb", "interaction", "obs-20") in targets
    assert stored("orphans") == []
    again = take_in(langfuse.records)
    assert (again.kept, again.duplicate, again.quarantined, again.skipped) == (0, 17, 2, 4)


def test_scores_that_come_before_their_observations_wait_and_join(langfuse: Any, take_in: Any, stored: Any) -> None:
    scores = [row for row in langfuse.records if "data_type" in row]
    take_in(scores)
    assert len(stored("orphans")) == 12 and stored("feedback") == []
    take_in([row for row in langfuse.records if "data_type" not in row])
    assert stored("orphans") == [] and len(stored("feedback")) == 13


def test_an_edited_score_is_taken_in_beside_the_first_and_is_the_later_of_the_two(
    langfuse: Any, take_in: Any, stored: Any
) -> None:
    row = next(row for row in langfuse.records if row.get("name") == "helpful")
    edited = row | {"value": 0, "string_value": "False", "updated_at": "2026-11-02 12:00:00.000000"}
    take_in([langfuse.records[0], row])
    assert take_in([edited]).kept == 1
    first, last = sorted(stored("feedback"), key=lambda one: one["ts"])
    assert (first["value"], last["value"]) == ("true", "false")


def test_an_answer_that_is_json_stays_the_text_it_was() -> None:
    row = {"id": "o", "trace_id": "t", "type": "GENERATION", "start_time": "2026-11-01 10:00:00", "input": "Which?"}
    for said in ('{ "queue" :"billing"}', '["a","b"]', '{"role": "manager", "name": "Al"}', "{not json"):
        assert call(row | {"output": said}).choices[0].message == {"role": "assistant", "content": said}


def test_times_without_a_zone_are_utc_and_the_latency_comes_from_them(langfuse: Any, take_in: Any, stored: Any) -> None:
    take_in([langfuse.records[0] | {"latency": 1.25}, langfuse.records[1] | {"latency": 1250}])
    rows = stored("interactions")
    assert rows[0]["ts"].isoformat() == "2026-11-01T10:01:00+00:00"
    assert [row["latency_ms"] for row in rows] == [1250.0, 1250.0]


@pytest.mark.parametrize(
    ("fields", "kind", "value", "text"),
    [
        ({"data_type": "CORRECTION", "string_value": "billing"}, "correction", None, "billing"),
        ({"data_type": "TEXT", "string_value": "Slow."}, "comment", None, "Slow."),
        ({"data_type": "CATEGORICAL", "value": 1, "string_value": "bad", "name": "quality"}, "thumb", False, ""),
        ({"data_type": "CATEGORICAL", "value": 0, "string_value": "sales", "name": "label"}, "label", "sales", ""),
        (
            {"data_type": "CATEGORICAL", "value": 0, "string_value": "sales", "name": "support_router"},
            "label",
            "sales",
            "",
        ),
        ({"data_type": "BOOLEAN", "value": 1, "name": "helpful"}, "thumb", True, ""),
        (
            {"data_type": "BOOLEAN", "value": 1, "name": "not_helpful"},
            "comment",
            {"name": "not_helpful", "value": True},
            "",
        ),
        ({"data_type": "BOOLEAN", "value": 1, "name": "toxic"}, "comment", {"name": "toxic", "value": True}, ""),
        ({"data_type": "BOOLEAN", "value": 0, "name": "resolved"}, "outcome", False, ""),
        ({"value": -1, "name": "userThumbs"}, "thumb", False, ""),
        ({"value": "5", "name": "stars"}, "rating", {"value": 5.0, "scale": [1, 5]}, ""),
        ({"value": 1, "name": "relevance"}, "rating", {"name": "relevance", "value": 1.0}, ""),
    ],
)
def test_a_score_keeps_its_meaning(fields: dict[str, Any], kind: str, value: Any, text: str) -> None:
    (found,) = score(**fields)
    assert (found.kind, found.value, found.text) == (kind, value, text)


def test_the_remark_beside_an_answer_is_a_comment_and_never_the_answer() -> None:
    for fields in (
        {"data_type": "CORRECTION", "string_value": "billing"},
        {"data_type": "CATEGORICAL", "string_value": "billing", "name": "label"},
        {"data_type": "BOOLEAN", "value": 0, "name": "resolved"},
    ):
        said, remark = score(comment="They asked for money.", **fields)
        assert "money" not in said.text and (remark.kind, remark.text) == ("comment", "They asked for money.")
    (thumb,) = score(comment="Thanks.", data_type="BOOLEAN", value=1, name="helpful")
    assert thumb.text == "Thanks."


@pytest.mark.parametrize(("given", "source"), [("API", "user"), ("ANNOTATION", "reviewer"), ("EVAL", "judge")])
def test_a_score_says_who_gave_it(given: str, source: str) -> None:
    assert score(source=given)[0].source == source


def test_two_evaluators_are_two_authors() -> None:
    assert score(source="EVAL", name="tone")[0].author == "tone"
    assert score(source="ANNOTATION", author_user_id="al")[0].author == "al"


@pytest.mark.parametrize(
    ("fields", "target"),
    [
        ({}, ("interaction", "o1")),
        ({"observation_id": ""}, ("metadata", '{"key":"langfuse_trace_id","value":"t1"}')),
        ({"observation_id": None, "trace_id": "", "session_id": "s9"}, ("conversation", "s9")),
    ],
)
def test_a_score_is_about_the_most_particular_thing_it_names(fields: dict[str, Any], target: tuple[str, str]) -> None:
    (found,) = score(**fields)
    assert (found.target_kind, found.target) == target


@pytest.mark.parametrize(
    ("fields", "error", "reason"),
    [
        ({"source": "ORACLE"}, BadRecord, "unknown score source"),
        ({"data_type": "VECTOR"}, BadRecord, "unknown score type"),
        ({"value": "high"}, BadRecord, "not a number"),
        ({"data_type": "BOOLEAN", "value": 7}, BadRecord, "neither true nor false"),
        ({"data_type": "CORRECTION", "string_value": " "}, BadRecord, "has no text"),
        ({"observation_id": "", "trace_id": ""}, BadRecord, "names nothing"),
        ({"observation_id": "", "trace_id": "", "dataset_run_id": "r"}, SkippedRecord, "dataset run"),
    ],
)
def test_a_score_that_says_nothing_usable_is_refused(
    fields: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        score(**fields)


def test_a_call_or_a_score_that_cannot_be_read_costs_its_trace_nothing_else(
    langfuse: Any, take_in: Any, stored: Any
) -> None:
    trace = langfuse.records[-1]
    call, root = trace["observations"]
    odd = [call, root, call | {"id": "o2", "input": None}, call | {"id": "o3", "environment": "sdk-experiment"}]
    report = take_in([trace | {"observations": odd, "scores": [*trace["scores"], {"source": "ORACLE"}, "id-only"]}])
    assert (report.kept, report.quarantined) == (1, 0)
    assert report.reasons == {"part dropped: no messages": 1, "part dropped: unknown score source": 1}
    assert len(stored("interactions")) == 1 and len(stored("feedback")) == 1
    refused = take_in([trace | {"observations": odd[2:3]}, trace | {"observations": odd[3:]}])
    assert refused.reasons == {"no messages": 1, "evaluation or experiment run": 1}


@given(data=st.data())
def test_fields_that_are_not_mapped_change_nothing(langfuse: Any, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(langfuse.records) - 1))
    record = langfuse.padded(data, langfuse.records[place])
    record |= {
        key: data.draw(st.text(max_size=3)) for key in ("project_id", "cost_details", "version") if key in record
    }
    assert langfuse.read(record) == langfuse.golden[place]
