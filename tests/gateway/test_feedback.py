"""Feedback: checked to the letter, on disk before the 2xx, the same id for the same fact."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

TASK, OTHER = "support_router", "summary"
URL = "/v1/feedback"
ABOUT = {"conversation_id": "c1", "task": TASK}


@pytest.fixture(scope="module")
def http(live: Any) -> Any:
    with live.http() as client:
        yield client


def ask(http: httpx.Client, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    return str(http.post("/v1/chat/completions", json=body).json()["id"])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"kind": "thumb", "value": "up"}, {"kind": "thumb", "value": True, "text": None}),
        ({"kind": "thumb", "value": False}, {"kind": "thumb", "value": False, "text": None}),
        ({"kind": "rating", "value": 4.5}, {"kind": "rating", "value": 4.5, "text": None}),
        ({"kind": "correction", "text": "billing"}, {"kind": "correction", "value": None, "text": "billing"}),
        (
            {"kind": "preference", "value": {"chosen": "a", "rejected": "b"}},
            {"kind": "preference", "value": {"chosen": "a", "rejected": "b"}, "text": None},
        ),
        (
            {"kind": "preference", "value": {"chosen": "a", "rejected": "b", "shown_first": "rejected"}},
            {"kind": "preference", "value": {"chosen": "a", "rejected": "b", "shown_first": "rejected"}, "text": None},
        ),
        ({"kind": "label", "value": "billing"}, {"kind": "label", "value": "billing", "text": None}),
        ({"kind": "label", "text": "billing"}, {"kind": "label", "value": None, "text": "billing"}),
        ({"kind": "comment", "text": "slow"}, {"kind": "comment", "value": None, "text": "slow"}),
        (
            {"kind": "outcome", "value": False, "text": "billing"},
            {"kind": "outcome", "value": False, "text": "billing"},
        ),
    ],
)
def test_each_kind_is_logged_as_meant(http: httpx.Client, live: Any, given: dict[str, Any], kept: Any) -> None:
    answer = http.post(URL, json={**ABOUT, **given, "author": "u1"})
    assert answer.status_code == 200, answer.text
    row = live.world.logged(answer.json()["id"])
    assert row["feedback"] == kept
    assert row["target"] == {"kind": "conversation", "id": "c1"}
    assert (row["kind"], row["task"], row["source"], row["author"]) == ("feedback", TASK, "user", "u1")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kind": "thumb", "value": "sideways"}, "thumb needs"),
        ({"kind": "thumb", "value": 1}, "thumb needs"),
        ({"kind": "thumb"}, "thumb needs"),
        ({"kind": "rating", "value": True}, "rating needs"),
        ({"kind": "rating", "value": "5"}, "rating needs"),
        ({"kind": "correction"}, "correction needs"),
        ({"kind": "correction", "text": "  "}, "correction needs"),
        ({"kind": "correction", "text": "a", "value": "b"}, "not `value`"),
        ({"kind": "preference", "value": {"chosen": "a"}}, "preference needs"),
        ({"kind": "preference", "value": {"chosen": "a", "rejected": "b", "shown_first": "a"}}, "preference needs"),
        ({"kind": "preference", "value": {"chosen": "a", "rejected": "b", "first": "a"}}, "preference needs"),
        ({"kind": "label"}, "label needs"),
        ({"kind": "label", "value": {"a": 1}}, "label needs"),
        ({"kind": "comment", "value": "x"}, "comment needs"),
        ({"kind": "outcome", "value": "yes"}, "outcome needs"),
        ({"kind": "applause"}, "kind"),
        ({"kind": "thumb", "value": "up", "thumb": "up"}, "thumb"),
        ({"kind": "thumb", "value": "up", "source": "nobody"}, "source"),
        ({"kind": "thumb", "value": "up", "task": "nobody"}, "task"),
        ({"kind": "thumb", "value": "up", "interaction_id": "x"}, "exactly one"),
        ({"kind": "thumb", "value": "up", "conversation_id": None}, "exactly one"),
        ({"kind": "thumb", "value": "up", "conversation_id": ""}, "conversation_id"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    http: httpx.Client, live: Any, given: dict[str, Any], says: str
) -> None:
    before = len(live.world.log())
    for body in ({**ABOUT, **given}, [{**ABOUT, "kind": "thumb", "value": "up"}, {**ABOUT, **given}]):
        answer = http.post(URL, json=body)
        assert answer.status_code == 400
        assert says in answer.json()["error"]["message"]
        if isinstance(body, list):
            assert answer.json()["error"]["param"].startswith("1") or answer.json()["error"]["message"].startswith("1")
    assert len(live.world.log()) == before


def test_a_list_is_answered_by_ids_in_order(http: httpx.Client, live: Any) -> None:
    items = [{**ABOUT, "kind": "rating", "value": n} for n in range(20)]
    ids = [item["id"] for item in http.post(URL, json=items).json()["data"]]
    assert [live.world.logged(name)["feedback"]["value"] for name in ids] == list(range(20))
    assert http.post(URL, json=[]).status_code == 400


def test_the_callers_own_id_makes_a_repeat_the_same_feedback(http: httpx.Client, live: Any) -> None:
    body = {**ABOUT, "kind": "thumb", "value": "up", "id": "click-1"}
    first, again = (http.post(URL, json=body).json()["id"] for _ in range(2))
    assert first == again
    other = [http.post(URL, json={**body, **change}).json()["id"] for change in ({"id": "click-2"}, {"task": OTHER})]
    assert len({first, *other}) == 3
    anonymous = {http.post(URL, json={**ABOUT, "kind": "thumb", "value": "up"}).json()["id"] for _ in range(2)}
    assert len(anonymous) == 2
    assert {row["source_id"] for row in live.world.log() if row["id"] == first} == {"click-1"}


def test_an_interactions_id_tells_its_task(http: httpx.Client, live: Any) -> None:
    for task in (TASK, OTHER):
        name = ask(http, task)
        for target in (name, f"{name}#1"):
            answer = http.post(URL, json={"interaction_id": target, "kind": "thumb", "value": "up"}).json()
            row = live.world.logged(answer["id"])
            assert row["task"] == task == answer["task"] and row["target"] == {"kind": "interaction", "id": target}
    wrong = http.post(URL, json={"interaction_id": name, "kind": "thumb", "value": "up", "task": TASK})
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "task"


def test_feedback_on_the_base_model_is_refused(http: httpx.Client) -> None:
    answer = http.post(URL, json={"interaction_id": ask(http, "tiny"), "kind": "thumb", "value": "up"})
    assert answer.status_code == 400 and "base model" in answer.json()["error"]["message"]


def test_a_foreign_id_or_a_metadata_key_needs_the_task_when_there_are_several(http: httpx.Client, live: Any) -> None:
    by_key = {"metadata": {"key": "ticket", "value": "42"}, "kind": "thumb", "value": "up"}
    answer = http.post(URL, json=by_key)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "task"
    name = http.post(URL, json={**by_key, "task": TASK}).json()["id"]
    assert live.world.logged(name)["target"] == {"kind": "metadata", "key": "ticket", "value": "42"}


def test_a_reviewer_may_be_named_on_loopback_without_keys(http: httpx.Client, live: Any) -> None:
    body = {**ABOUT, "kind": "label", "value": "billing", "source": "reviewer", "author": "ann"}
    row = live.world.logged(http.post(URL, json=body).json()["id"])
    assert (row["source"], row["author"]) == ("reviewer", "ann")
