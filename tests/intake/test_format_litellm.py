"""LiteLLM payloads: which of them are calls, and what those become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.formats import named
from flywheel.intake.records import BadRecord, Context, InteractionRecord, SkippedRecord

CONTEXT = Context("support_router", frozenset({"support_router", "writer"}))


@pytest.fixture
def litellm(log_fixture: Any) -> Any:
    return log_fixture("litellm")


def call(row: dict[str, Any], **fields: Any) -> InteractionRecord:
    (found,) = named("litellm").records({**row, **fields}, CONTEXT)
    assert isinstance(found, InteractionRecord)
    return found


def test_an_import_reconciles_and_repeats_nothing(litellm: Any, take_in: Any, stored: Any) -> None:
    report = take_in(litellm.records)
    assert (report.read, report.kept, report.quarantined, report.skipped) == (18, 13, 2, 3)
    assert report.reasons["shadow experiment"] == report.reasons["redacted"] == report.reasons["not a model call"] == 1
    rows = {row["interaction_id"]: row for row in stored("interactions")}
    assert [row["cache_hit"] for row in rows.values()].count(True) == 1
    assert [row["status"] for row in rows.values()].count("error") == 2
    again = take_in(litellm.records)
    assert (again.kept, again.duplicate) == (0, 13)


def test_feedback_finds_a_call_by_the_header_that_the_client_got(
    litellm: Any, take_in: Any, stored: Any, deployment: Any, traffic: Any
) -> None:
    take_in(litellm.records[:2])
    about = {"kind": "metadata", "key": "litellm_call_id", "value": "call-2"}
    take_in([traffic.feedback(1, "thumb", value=True, target=about)])
    (row,) = stored("feedback")
    assert (row["target_kind"], row["target_id"]) == ("interaction", "chatcmpl-lite-2")


def test_failed_attempts_under_one_id_are_calls_of_their_own(litellm: Any, take_in: Any, stored: Any) -> None:
    assert take_in(litellm.records[2:5]).kept == 3
    assert sorted(row["status"] for row in stored("interactions")) == ["error", "error", "ok"]


def test_the_latency_is_not_the_time_to_the_first_token(litellm: Any) -> None:
    assert call(litellm.records[1], response_time=0.01).latency_ms == pytest.approx(1300, abs=1)


@pytest.mark.parametrize("given", [True, "True", "true", 1])
def test_a_cache_hit_is_marked_however_it_is_written(litellm: Any, given: Any) -> None:
    assert call(litellm.records[0], cache_hit=given).cache_hit
    assert not call(litellm.records[0], cache_hit=None).cache_hit


def test_the_owner_of_the_key_is_not_the_user_and_no_mail_address_is_kept(litellm: Any) -> None:
    found = call(litellm.records[0], end_user="")
    assert found.user is None and "owner@example.org" not in str(found)


def test_content_beside_tool_calls_and_arguments_are_kept_to_the_letter(litellm: Any) -> None:
    message = call(litellm.records[1]).choices[0].message
    assert message["content"] == "I look it up."
    assert message["tool_calls"][0]["function"]["arguments"] == '{ "id" : "42" }'
    assert "function_call" not in call(litellm.records[0]).choices[0].message


@pytest.mark.parametrize(
    ("fields", "error", "reason"),
    [
        ({"call_type": "aembedding"}, SkippedRecord, "not a model call"),
        ({"metadata": {"is_silent_experiment": True}}, SkippedRecord, "shadow experiment"),
        ({"request_tags": ["writer"]}, SkippedRecord, "other task"),
        ({"model_group": "writer"}, SkippedRecord, "other task"),
        ({"response": {"text": "redacted-by-litellm"}}, SkippedRecord, "redacted"),
        ({"messages": "redacted-by-litellm"}, SkippedRecord, "redacted"),
        ({"messages": "Long...(litellm_truncated 9 chars)"}, BadRecord, "cut short"),
        ({"messages": None}, BadRecord, "no messages"),
        ({"messages": {}}, BadRecord, "no messages"),
        ({"response": None}, BadRecord, "no answer"),
        ({"response": {}}, BadRecord, "no choices"),
        ({"response": {"choices": []}}, BadRecord, "no choices"),
        ({"id": "x" * 121}, BadRecord, "an id is too long"),
    ],
)
def test_what_is_no_whole_call_is_refused_with_its_reason(
    litellm: Any, fields: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        call(litellm.records[0], **fields)


@given(data=st.data())
def test_fields_that_are_not_mapped_change_nothing(litellm: Any, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(litellm.records) - 1))
    record = litellm.padded(data, litellm.records[place])
    record |= {
        key: data.draw(st.text(max_size=3))
        for key in ("hidden_params", "api_base", "response_time", "error_str")
        if key in record
    }
    assert litellm.read(record) == litellm.golden[place]
