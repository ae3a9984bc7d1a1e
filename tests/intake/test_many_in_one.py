"""One input record that holds several: it is counted once, whatever becomes of its parts."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.intake.formats import FORMATS, LogFormat, named
from flywheel.intake.records import BadRecord, Choice, Context, Dropped, FeedbackRecord, InteractionRecord
from flywheel.store.registry import schema

HOUR = 3600


def _parts(record: dict[str, Any], context: Context) -> list[Any]:
    found: list[Any] = []
    for part in record["bundle"]:
        if "reason" in part:
            found.append(Dropped(part["reason"]))
        elif "about" in part:
            about = (part.get("by", "interaction"), part["about"], "thumb", True, "")
            found.append(FeedbackRecord(part["id"], part.get("ts"), *about, "user", part.get("author"), None, ""))
        else:
            choice = Choice(0, {"role": "assistant", "content": part.get("answer", "billing")}, None)
            message = {"role": "user", "content": "hi"}
            found.append(InteractionRecord(part["id"], part.get("ts"), [message], [choice], user=part.get("user")))
    return found


@pytest.fixture(autouse=True)
def bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A format whose records hold a list of calls and feedback."""
    monkeypatch.setitem(FORMATS, "bundle", LogFormat("bundle", lambda record: "bundle" in record, _parts))


def bundle(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"bundle": [{"ts": 1764500000, **part} for part in parts]}


CALL, OTHER, THUMB = {"id": "c1"}, {"id": "c2"}, {"id": "f1", "about": "c1"}


def test_a_record_is_one_however_much_it_holds(take_in: Any, stored: Any) -> None:
    report = take_in([bundle(CALL, OTHER, THUMB)])
    assert (report.read, report.kept) == (1, 1)
    assert len(stored("interactions")) == 2 and len(stored("feedback")) == 1 and stored("orphans") == []


def test_a_record_is_kept_when_anything_in_it_is_new_and_a_duplicate_when_nothing_is(take_in: Any, stored: Any) -> None:
    report = take_in([bundle(CALL), bundle(CALL, THUMB), bundle(THUMB, CALL), bundle(CALL, OTHER)])
    assert (report.read, report.kept, report.duplicate) == (4, 3, 1)
    assert take_in([bundle(CALL, OTHER, THUMB)]).duplicate == 1
    assert len(stored("interactions")) == 2 and len(stored("feedback")) == 1


def test_a_part_that_contradicts_the_store_costs_the_record_only_that_part(take_in: Any, stored: Any) -> None:
    changed = CALL | {"answer": "sales"}
    report = take_in([bundle(CALL), bundle(changed, OTHER), bundle(changed), bundle(changed, OTHER)])
    assert (report.kept, report.duplicate, report.quarantined) == (2, 0, 2)
    assert report.reasons["part dropped: same id as another record, other content"] == 1
    assert [row["interaction_id"] for row in stored("interactions")] == ["c1", "c2"]
    assert "billing" in stored("interactions")[0]["response"]


def test_two_parts_of_one_id_keep_the_first(take_in: Any, stored: Any) -> None:
    report = take_in([bundle(CALL, CALL | {"answer": "sales"}, CALL)])
    assert report.kept == 1 and len(stored("interactions")) == 1


def test_a_part_that_could_not_be_read_is_noted_and_one_that_is_all_there_is_quarantines(take_in: Any) -> None:
    report = take_in([bundle(CALL, {"reason": "no text"}), bundle({"reason": "no text"})])
    assert (report.kept, report.quarantined) == (1, 1)
    assert report.reasons == {"part dropped: no text": 1, "no text": 1}


def test_a_record_is_late_or_odd_in_time_once(take_in: Any) -> None:
    ts = 1764500000
    report = take_in(
        [
            bundle(CALL | {"ts": ts}),
            bundle(OTHER | {"ts": ts - 3 * HOUR}, THUMB | {"ts": ts - 2 * HOUR}),
            bundle({"id": "c3", "ts": ts - 3 * HOUR}, {"id": "c4", "ts": ts}),
            bundle({"id": "c5", "ts": None}, {"id": "c6", "ts": None}, {"id": "c7", "ts": ts}),
        ]
    )
    assert (report.kept, report.late, report.reasons) == (4, 1, {"time missing": 1})


def test_a_record_without_anything_is_refused() -> None:
    with pytest.raises(BadRecord, match="nothing found"):
        named("bundle").records({"bundle": []}, Context("t", frozenset()))


def test_what_an_erased_user_said_goes_and_the_rest_of_the_record_stays(
    deployment: Any, take_in: Any, stored: Any
) -> None:
    erase(deployment, "mallory")
    mine, theirs = CALL | {"user": "mallory"}, OTHER | {"user": "al"}
    by_trace = {"id": "f2", "about": '{"key":"trace","value":"t"}', "by": "metadata"}
    report = take_in([bundle(mine, theirs, THUMB | {"author": "al"}, by_trace)])
    assert (report.kept, report.skipped) == (1, 0)
    assert report.reasons == {"part dropped: about an erased user": 1, "part dropped: erased user": 1}
    assert [row["interaction_id"] for row in stored("interactions")] == ["c2"]
    assert stored("feedback") == stored("orphans") == []


def test_a_record_of_nothing_but_an_erased_user_is_skipped(deployment: Any, take_in: Any, stored: Any) -> None:
    erase(deployment, "mallory")
    report = take_in([bundle(CALL | {"user": "mallory"}, THUMB)])
    assert (report.kept, report.skipped, report.reasons) == (0, 1, {"erased user": 1})
    assert stored("interactions") == stored("orphans") == []


def erase(deployment: Any, user: str) -> None:
    """Note in the registry that a user is erased, as the erasure of a home in which they had nothing does."""
    with deployment.registry.write() as tx:
        row = {"erasure_id": "e1", "user_key": deployment.home.user_key(user), "state": "done"}
        tx.execute(sa.insert(schema.erasures).values(**row, counts={}, tainted={}, **tx.stamp()))
