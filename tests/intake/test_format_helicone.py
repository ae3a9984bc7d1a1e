"""Helicone rows: the call, the rating of its user and the scores of judges."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.formats import named
from flywheel.intake.records import BadRecord, Context, FeedbackRecord, InteractionRecord, SkippedRecord

CONTEXT = Context("support_router", frozenset({"support_router", "writer"}))


@pytest.fixture
def helicone(log_fixture: Any) -> Any:
    return log_fixture("helicone")


def said(row: dict[str, Any], **fields: Any) -> list[FeedbackRecord]:
    call, *found = named("helicone").records({**row, **fields}, CONTEXT)
    assert isinstance(call, InteractionRecord)
    return [one for one in found if isinstance(one, FeedbackRecord)]


def call(row: dict[str, Any], **fields: Any) -> InteractionRecord:
    found = named("helicone").records({**row, **fields}, CONTEXT)[0]
    assert isinstance(found, InteractionRecord)
    return found


def test_an_import_reconciles_joins_its_feedback_and_repeats_nothing(helicone: Any, take_in: Any, stored: Any) -> None:
    report = take_in(helicone.records)
    assert (report.read, report.kept, report.quarantined, report.skipped) == (11, 8, 2, 1)
    rows = {row["interaction_id"]: row for row in stored("interactions")}
    assert (rows["req-4"]["status"], rows["req-3"]["cache_hit"]) == ("error", True)
    assert [row["target_id"] for row in stored("feedback")].count("req-1") == 5 and stored("orphans") == []
    again = take_in(helicone.records)
    assert (again.kept, again.duplicate) == (0, 8)


def test_a_rating_given_after_the_first_export_comes_in_with_the_next(helicone: Any, take_in: Any, stored: Any) -> None:
    row = helicone.records[8]
    take_in([row])
    rated = row | {"feedback_rating": True, "feedback_id": "f", "feedback_created_at": "2026-11-02T10:00:00Z"}
    report = take_in([rated, rated])
    assert (report.kept, report.duplicate, report.quarantined) == (1, 1, 0)
    assert [(one["kind"], one["value"]) for one in stored("feedback")] == [("thumb", "true")]
    assert len(stored("interactions")) == 1


def test_the_rating_that_is_also_a_score_counts_once(helicone: Any) -> None:
    row = helicone.records[8]
    (thumb,) = said(row, feedback_rating=True, feedback_id="f", scores={"helicone-score-feedback": 1})
    assert (thumb.kind, thumb.value, thumb.source) == ("thumb", True, "user")
    (thumb,) = said(row, scores={"helicone-score-feedback": {"value": 0}})
    assert (thumb.kind, thumb.value, thumb.source) == ("thumb", False, "user")


@pytest.mark.parametrize(
    ("name", "entry", "kind", "value"),
    [
        ("helpful", 20, "rating", {"name": "helpful", "value": 20.0}),
        ("helpful-hcone-bool", 0, "thumb", False),
        ("helpful", {"value": 1, "valueType": "boolean"}, "thumb", True),
        ("helpful", {"value": 1, "valueType": "number"}, "rating", {"name": "helpful", "value": 1.0}),
        ("toxic-hcone-bool", 1, "comment", {"name": "toxic", "value": True}),
    ],
)
def test_a_score_is_a_judges_under_its_own_name(helicone: Any, name: str, entry: Any, kind: str, value: Any) -> None:
    (found,) = said(helicone.records[8], scores={name: entry})
    assert (found.kind, found.value, found.source) == (kind, value, "judge")
    assert found.author == name.removesuffix("-hcone-bool")


@pytest.mark.parametrize("key", ["Helicone-Session-Id", "Session", "session_id", "conversation_id"])
def test_a_session_is_a_conversation(helicone: Any, key: str) -> None:
    assert call(helicone.records[8], request_properties={key: "s1"}).conversation_id == "s1"


def test_bodies_may_be_text(helicone: Any) -> None:
    found = call(helicone.records[1])
    assert found.stream and found.tools is not None
    assert found.choices[0].message["content"] == "I look it up."
    assert found.choices[0].message["tool_calls"][0]["function"]["arguments"] == '{ "id" : "42" }'


@pytest.mark.parametrize(
    ("fields", "error", "reason"),
    [
        ({"request_path": "/v1/embeddings"}, SkippedRecord, "not a model call"),
        ({"request_properties": {"app": "writer"}}, SkippedRecord, "other task"),
        ({"request_id": None}, BadRecord, "no id"),
        ({"request_body": {}, "signed_body_url": "https://x"}, BadRecord, "only their address"),
        ({"request_body": {}}, BadRecord, "no messages"),
        ({"response_body": None}, BadRecord, "no choices"),
        ({"feedback_rating": "maybe"}, BadRecord, "neither true nor false"),
        ({"scores": {"helpful": [1]}}, BadRecord, "neither a number nor a boolean"),
    ],
)
def test_what_is_no_whole_row_is_refused_with_its_reason(
    helicone: Any, fields: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        call(helicone.records[8], **fields)


@given(data=st.data())
def test_fields_that_are_not_mapped_change_nothing(helicone: Any, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(helicone.records) - 1))
    record = helicone.padded(data, helicone.records[place])
    record |= {
        key: data.draw(st.text(max_size=3))
        for key in ("provider", "country_code", "asset_ids", "time_to_first_token")
        if key in record
    }
    assert helicone.read(record) == helicone.golden[place]
