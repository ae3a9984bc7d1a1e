"""Feedback before, after and without its call, sent twice and edited, and clocks that are wrong: in every format."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.intake.formats import FORMATS
from flywheel.store.registry import schema

TASK = "support_router"
NAMES = sorted(FORMATS)
START = 1764500000
HOUR = 3600
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


def _gateway(good: bool, ts: Any) -> Row:
    about = {"target": {"kind": "interaction", "id": "call-1"}, "feedback": {"kind": "thumb", "value": good}}
    return {"v": 1, "kind": "feedback", "id": f"f-{ts}", "task": TASK, "source": "user", "ts": ts, **about}


def _langfuse(good: bool, ts: Any) -> Row:
    said = {"name": "helpful", "value": int(good), "data_type": "BOOLEAN", "source": "API"}
    return {"id": "s", "observation_id": "call-1", "timestamp": ts, "updated_at": ts, **said}


def _open_webui(good: bool, ts: Any) -> Row:
    said = {"data": {"rating": 1 if good else -1}, "meta": {"message_id": "call-1"}}
    return {"id": "f", "user_id": "u", "type": "rating", "updated_at": ts, **said}


def _otel(good: bool, ts: Any) -> Row:
    said = {"gen_ai.evaluation.name": "user_thumb", "gen_ai.evaluation.score.value": float(good)}
    about = {"gen_ai.response.id": "call-1"}
    return {"eventName": "gen_ai.evaluation.result", "timeUnixNano": ts, "attributes": said | about}


def _tensorzero(good: bool, ts: Any) -> Row:
    table = {"table": "BooleanMetricFeedback", "id": f"f-{ts}"}
    return {**table, "target_id": "call-1", "metric_name": "helpful", "value": good, "timestamp": ts}


APART: dict[str, Callable[[bool, Any], Row]] = {
    "gateway": _gateway,
    "langfuse": _langfuse,
    "open_webui": _open_webui,
    "otel": _otel,
    "tensorzero": _tensorzero,
}
"""Feedback in a record of its own: whether it was good, and when."""


def _helicone(call: Row, good: bool, ts: Any) -> Row:
    return {**call, "feedback_rating": good, "feedback_id": "f", "feedback_created_at": ts}


def _openai_chat(call: Row, good: bool, ts: Any) -> Row:
    return {**call, "metadata": {"thumb": "up" if good else "down"}, "timestamp": ts}


WITH_THE_CALL: dict[str, Callable[[Row, bool, Any], Row]] = {"helicone": _helicone, "openai_chat": _openai_chat}
"""Feedback that stands in the record of the call, later than the call in a later export."""


def thumbs(rows: list[Row]) -> list[str]:
    """What thumbs say, the latest last."""
    return [row["value"] for row in sorted(rows, key=lambda row: row["ts"]) if row["kind"] == "thumb"]


@pytest.mark.parametrize("fmt", sorted(APART))
def test_feedback_joins_its_call_before_and_after_it_and_waits_without_it(
    call_class: Any, take_in: Any, stored: Any, fmt: str
) -> None:
    early, late = APART[fmt](True, START + 1), APART[fmt](False, START + 2)
    other = call_class(id="another", talk="another").written(fmt)
    take_in([early, other], fmt=fmt)
    assert (len(stored("orphans")), stored("feedback")) == (1, [])
    take_in([call_class().written(fmt)], fmt=fmt)
    assert (stored("orphans"), thumbs(stored("feedback"))) == ([], ["true"])
    take_in([late], fmt=fmt)
    assert (stored("orphans"), thumbs(stored("feedback"))) == ([], ["true", "false"])
    assert {(row["target_kind"], row["target_id"]) for row in stored("feedback")} == {("interaction", "call-1")}


@pytest.mark.parametrize("fmt", sorted(APART))
def test_feedback_sent_twice_counts_once_also_while_it_waits(
    call_class: Any, take_in: Any, stored: Any, fmt: str
) -> None:
    said = APART[fmt](True, START + 1)
    first = take_in([said, said], fmt=fmt)
    again = take_in([said, call_class().written(fmt), said], fmt=fmt)
    assert (first.kept, first.duplicate, again.kept, again.duplicate) == (1, 1, 1, 2)
    assert len(stored("feedback")) == 1 and stored("orphans") == []


@pytest.mark.parametrize("fmt", sorted(WITH_THE_CALL))
def test_feedback_in_the_record_of_its_call_counts_once_and_an_edited_one_beside_it(
    call_class: Any, take_in: Any, stored: Any, fmt: str
) -> None:
    call, rated = call_class(ts=START).written(fmt), WITH_THE_CALL[fmt]
    good, bad = (rated(call, value, START + place) for place, value in enumerate((True, False), 1))
    reports = [take_in([record], fmt=fmt) for record in (call, good, good, bad, bad)]
    assert [report.kept for report in reports] == [1, 1, 0, 1, 0]
    assert all(report.kept + report.duplicate == 1 for report in reports)
    assert len(stored("interactions")) == 1
    assert thumbs(stored("feedback")) == ["true", "false"]


@pytest.mark.parametrize("fmt", sorted(APART))
@pytest.mark.parametrize("wrong", ["2150-01-01T00:00:00Z", "9999-12-31T00:00:00Z", 0, "soon"])
def test_feedback_whose_clock_is_wrong_is_kept_and_outranks_nothing(
    call_class: Any, take_in: Any, stored: Any, fmt: str, wrong: Any
) -> None:
    lines = [call_class(ts=START).written(fmt), APART[fmt](True, START + 1), APART[fmt](False, wrong)]
    report = take_in(lines, fmt=fmt)
    assert report.kept == 3 and sum(report.reasons.values()) == 1
    assert thumbs(stored("feedback")) == ["false", "true"]
    assert min(row["ts"] for row in stored("feedback")) == EPOCH


@pytest.mark.parametrize("fmt", NAMES)
def test_a_clock_that_is_wrong_makes_no_record_late_and_moves_no_watermark(
    call_class: Any, take_in: Any, stored: Any, deployment: Any, fmt: str
) -> None:
    times = ["2150-01-01T00:00:00Z", 0, "9999-12-31T00:00:00Z", START + 3 * HOUR, START, START + 3 * HOUR - 60]
    calls = [call_class(id=f"c{place}", talk=f"t{place}", ts=ts) for place, ts in enumerate(times)]
    report = take_in([call.written(fmt) for call in calls], fmt=fmt)
    assert (report.kept, report.late, report.reasons) == (6, 1, {"time implausible": 3})
    qualities = [row["ts_quality"] for row in stored("interactions") if not row["choice_index"]]
    assert qualities == ["implausible"] * 3 + ["ok"] * 3
    with deployment.registry.read() as tx:
        (source,) = tx.rows(sa.select(schema.sources))
    assert datetime.fromisoformat(source["watermark"]).timestamp() == START + 3 * HOUR


def test_a_clock_that_is_wrong_does_not_make_a_call_the_latest_of_its_trace(
    traffic: Any, take_in: Any, stored: Any
) -> None:
    ticket = {"metadata": {"ticket": "42"}}
    ahead, now = traffic.call(1, ts="2150-01-01T00:00:00Z", **ticket), traffic.call(2, **ticket)
    about = {"target": {"kind": "metadata", "key": "ticket", "value": "42"}}
    take_in([now, ahead, traffic.feedback(3, text="sales", **about)])
    take_in([traffic.feedback(4, text="sales", name="later", **about)])
    assert [row["target_id"] for row in stored("feedback")] == [traffic.call_id(2)] * 2


@pytest.mark.parametrize("apart", [False, True])
def test_a_clock_that_is_wrong_does_not_make_a_turn_the_last_of_its_conversation(
    traffic: Any, take_in: Any, stored: Any, apart: bool
) -> None:
    talk = {"conversation_id": "talk"}
    turns = [traffic.call(1, **talk), traffic.call(2, ts="2150-01-01T00:00:00Z", **talk), traffic.call(3, **talk)]
    for lines in [[turn] for turn in turns] if apart else [turns]:
        take_in(lines)
    order = sorted(stored("interactions"), key=lambda row: row["turn_index"])
    assert [row["interaction_id"] for row in order] == [traffic.call_id(number) for number in (2, 1, 3)]
    assert [row["turn_index"] for row in order] == [0, 1, 2]
