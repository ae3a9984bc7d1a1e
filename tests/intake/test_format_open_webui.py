"""Open WebUI exports: a chat unfolded into calls, its ratings, and the feedback list with its snapshots."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.formats import named
from flywheel.intake.records import BadRecord, Context, FeedbackRecord, InteractionRecord, SkippedRecord

CONTEXT = Context("support_router", frozenset({"support_router", "writer"}))


@pytest.fixture
def open_webui(log_fixture: Any) -> Any:
    return log_fixture("open_webui")


def read(row: dict[str, Any]) -> tuple[dict[str | None, InteractionRecord], list[FeedbackRecord]]:
    found = named("open_webui").records(row, CONTEXT)
    calls = {one.call_id: one for one in found if isinstance(one, InteractionRecord)}
    return calls, [one for one in found if isinstance(one, FeedbackRecord)]


def chat_of(*nodes: dict[str, Any], **body: Any) -> dict[str, Any]:
    """A chat of these messages, each the child of the one before it unless it says otherwise."""
    linked, before = {}, None
    for number, node in enumerate(nodes):
        own = {"id": f"m{number}", "parentId": before, "content": "x", "timestamp": 1764500000 + number, **node}
        linked[own["id"]], before = own, own["id"]
    return {"id": "c", "user_id": "u", "title": "t", "chat": {"history": {"messages": linked}, **body}}


ASK, SAY = {"role": "user"}, {"role": "assistant", "model": "assistant", "done": True}


def test_an_import_reconciles_joins_its_feedback_and_repeats_nothing(
    open_webui: Any, take_in: Any, stored: Any
) -> None:
    report = take_in(open_webui.records)
    assert (report.read, report.kept, report.quarantined, report.skipped) == (9, 5, 2, 2)
    rows = {row["interaction_id"]: row for row in stored("interactions")}
    assert rows.keys() == {"m-2", "m-3", "m-5", "m-21", "m-23", "m-24", "m-46", "m-51"}
    assert rows["m-5"]["parent_interaction_id"] == "m-3" and rows["m-5"]["conversation_id"] == "chat-1"
    assert stored("orphans") == [] and len(stored("feedback")) == 9
    again = take_in(open_webui.records)
    assert (again.kept, again.duplicate) == (0, 5)


def test_a_chat_that_went_on_brings_only_its_new_turns(open_webui: Any, take_in: Any, stored: Any) -> None:
    row = open_webui.records[0]
    take_in([row])
    longer = copy.deepcopy(row)
    longer["chat"]["history"]["messages"]["m-7"] |= {"done": True, "content": "You are welcome."}
    assert take_in([longer]).kept == 1
    assert {one["interaction_id"] for one in stored("interactions")} == {"m-2", "m-3", "m-5", "m-7"}


def test_an_answer_edited_twice_costs_the_chat_neither_its_new_turns_nor_the_answer(
    open_webui: Any, take_in: Any, stored: Any
) -> None:
    take_in(open_webui.records[:1])
    changed = copy.deepcopy(open_webui.records[0])
    changed["chat"]["history"]["messages"]["m-5"] |= {"originalContent": "billing", "content": "refunds"}
    changed["chat"]["history"]["messages"]["m-7"] |= {"done": True, "content": "Bye."}
    report = take_in([changed])
    assert (report.kept, report.quarantined) == (1, 0)
    assert report.reasons == {"part dropped: same id as another record, other content": 1}
    rows = {one["interaction_id"]: one for one in stored("interactions")}
    assert "m-7" in rows and "delivery" in rows["m-5"]["response"]
    assert sorted(one["text"] for one in stored("feedback") if one["kind"] == "correction") == ["billing", "refunds"]


def test_the_feedback_list_alone_brings_the_rated_answer_and_the_chat_repeats_it(
    open_webui: Any, take_in: Any, stored: Any
) -> None:
    row = open_webui.records[5]
    take_in([row])
    assert [one["interaction_id"] for one in stored("interactions")] == ["m-51"] and stored("orphans") == []
    chat = row["snapshot"]["chat"]
    take_in([chat])
    assert [one["interaction_id"] for one in stored("interactions")] == ["m-51"]


def test_feedback_without_a_snapshot_waits_for_its_chat(open_webui: Any, take_in: Any, stored: Any) -> None:
    take_in([open_webui.records[6]])
    assert len(stored("orphans")) == 1
    take_in([open_webui.records[0]])
    assert stored("orphans") == []


def test_the_request_of_an_answer_is_its_own_branch() -> None:
    calls, _ = read(
        chat_of(
            ASK,
            SAY,
            ASK | {"content": "again?"},
            SAY | {"content": "yes"},
            ASK | {"parentId": "m1", "content": "other?"},
            SAY | {"content": "no"},
        )
    )
    assert [message["content"] for message in calls["m5"].messages] == ["x", "x", "other?"]
    assert calls["m5"].parent_id == "m1"


def test_only_the_same_models_later_answer_is_a_regeneration() -> None:
    other = SAY | {"model": "other", "parentId": "m0"}
    _, said = read(chat_of(ASK, SAY, other, SAY | {"parentId": "m0", "content": "y"}))
    assert [(one.kind, one.target, one.source) for one in said] == [("regenerate", "m1", "implicit")]


def test_unfinished_answers_wait_and_failed_ones_are_kept() -> None:
    calls, _ = read(chat_of(ASK, SAY | {"content": "", "error": {"content": "boom"}}, ASK, SAY | {"done": False}))
    assert calls.keys() == {"m1"}
    assert (calls["m1"].status, calls["m1"].choices) == ("error", [])


def test_a_plain_list_of_messages_is_a_chat_without_branches() -> None:
    rows = [{"id": "a", "role": "user", "content": "hi"}, {"id": "b", "content": "hello", **SAY, "timestamp": 1}]
    calls, _ = read({"id": "c", "user_id": "u", "title": "t", "chat": {"messages": rows}})
    assert calls["b"].messages == [{"role": "user", "content": "hi"}]


def test_reasoning_and_tools_are_taken_out_of_the_text_and_kept() -> None:
    block = '<details type="tool_calls" done="true" id="t{0}" name="f" arguments="{1}" result="{2}">\n</details>'
    said = (
        '<details type="reasoning" done="true">\n<summary>Thought</summary>\n> a &lt; b\n</details>\nLet me see.\n'
        + block.format(1, "&quot;{ \\&quot;n\\&quot;: 1 }&quot;", "&quot;one&quot;")
        + block.format(2, "{&quot;n&quot;: 2}", "two")
        + "\nIt is one.\n"
    )
    calls, _ = read(chat_of(ASK, SAY | {"content": said}))
    answer, (_, wanted, one, two) = calls["m1"].choices[0].message, calls["m1"].messages
    assert answer == {"role": "assistant", "content": "It is one.", "reasoning_content": "a < b"}
    assert wanted["content"] == "Let me see."
    arguments = [item["function"]["arguments"] for item in wanted["tool_calls"]]
    assert arguments == ['{ "n": 1 }', '{"n": 2}']
    assert (one["content"], two["tool_call_id"], two["content"]) == ("one", "t2", "two")


@pytest.mark.parametrize("said", ["plain\n", '<details type="reasoning">\nnever closed', "<details>\nhtml</details>"])
def test_text_that_only_looks_like_a_block_stays_as_it_is(said: str) -> None:
    calls, _ = read(chat_of(ASK, SAY | {"content": said}))
    assert calls["m1"].choices[0].message == {"role": "assistant", "content": said}


@pytest.mark.parametrize(
    "said",
    [
        '<details type="reasoning"' * 40_000,
        '<details type="reasoning">' * 40_000,
        '<details type="tool_calls" ' + "a" * 400_000 + "></details>",
        '<details type="reasoning">' + " " * 400_000 + "</details>",
    ],
    ids=["tags that never end", "blocks that never end", "an attribute that never ends", "nothing but space"],
)
def test_no_answer_takes_long_to_take_apart(said: str) -> None:
    start = time.process_time()
    read(chat_of(ASK, SAY | {"content": said}))
    assert time.process_time() - start < 2


def test_an_edited_answer_is_a_correction_of_what_the_model_said() -> None:
    calls, (said,) = read(chat_of(ASK, SAY | {"originalContent": "sales", "content": "billing"}))
    assert calls["m1"].choices[0].message["content"] == "sales"
    assert (said.kind, said.text, said.source, said.author) == ("correction", "billing", "user", "u")


def test_the_rating_from_one_to_ten_stands_beside_the_thumb_and_not_in_its_place(
    open_webui: Any, take_in: Any, stored: Any
) -> None:
    from datetime import UTC, datetime

    from flywheel.config_labels import EditPolicy
    from flywheel.labels.evidence import current, read_evidence

    take_in(open_webui.records[:1])
    rows = [one for one in stored("feedback") if one["target_id"] == "m-3"]
    evidence = read_evidence(current(rows, datetime.now(UTC)), "delivery", EditPolicy())
    assert [(item.source, item.good) for item in evidence] == [("thumb", True)]


def test_an_answer_or_a_rating_that_cannot_be_read_costs_the_chat_nothing_else(take_in: Any, stored: Any) -> None:
    odd = SAY | {"content": ["x"]}, SAY | {"parentId": "m0", "annotation": {"rating": 5}}
    report = take_in([chat_of(ASK, *odd, SAY | {"parentId": "m0", "model": "other"})])
    assert (report.kept, report.quarantined) == (1, 0)
    reasons = {"part dropped: an answer is not text": 1, "part dropped: the rating is neither 1 nor -1": 1}
    assert report.reasons == reasons
    assert [row["interaction_id"] for row in stored("interactions")] == ["m2", "m3"]


def test_a_chat_too_long_to_be_written_out_is_refused() -> None:
    turns = [ASK | {"content": "x" * 20_000}, SAY] * 100
    with pytest.raises(BadRecord, match="too long"):
        read(chat_of(*turns))


@pytest.mark.parametrize(
    ("record", "error", "reason"),
    [
        (chat_of(ASK), SkippedRecord, "chat without an answer"),
        (chat_of(ASK, SAY | {"model": "writer"}), SkippedRecord, "other task"),
        (chat_of(SAY), BadRecord, "no messages"),
        (chat_of(), BadRecord, "no messages"),
        (chat_of(ASK | {"parentId": "m1"}, SAY), BadRecord, "in a circle"),
        (chat_of(ASK, SAY | {"content": ["x"]}), BadRecord, "not text"),
        ({"user_id": "u", "type": "note", "data": {}, "meta": {}}, SkippedRecord, "no rating"),
        ({"user_id": "u", "type": "rating", "data": {"rating": 1}, "meta": {}}, BadRecord, "names no message"),
        ({"user_id": "u", "type": "rating", "data": {}, "meta": {"message_id": "m"}}, BadRecord, "says nothing"),
    ],
)
def test_what_holds_no_answer_or_no_rating_is_refused_with_its_reason(
    record: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        read(record)


@given(data=st.data())
def test_fields_that_are_not_mapped_change_nothing(open_webui: Any, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(open_webui.records) - 1))
    record = open_webui.padded(data, open_webui.records[place])
    record |= {key: data.draw(st.text(max_size=3)) for key in ("share_id", "folder_id", "version") if key in record}
    assert open_webui.read(record) == open_webui.golden[place]
