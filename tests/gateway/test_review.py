"""The review queue over HTTP: who may see it, what it hands out, and what becomes of a label."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from flywheel.gateway import review_desk
from flywheel.gateway.keys import create_key
from flywheel.gateway.review_read import LONGEST_TURN, plain_turn, read_review
from flywheel.intake import run_intake
from flywheel.labels import current_labels, run_labels

TASK = "support_router"
ELSEWHERE = {"engine": "http://127.0.0.1:9/v1", "base": "acme/model"}  # no test asks it for an answer
ALL_AUDITED = {"maturity_hours": 0, "audit_share": 1, "gate_labels": ["reviewer"]}
TEXT = "MARKERTEXT"


@dataclass
class Desk:
    """A gateway over a home whose traffic is in the store, and its reviewers."""

    wheel: Any
    http: httpx.Client
    keys: dict[str, str]

    def items(self, author: str = "ann", **asked: Any) -> list[str]:
        """The ids that ``author`` gets, in order."""
        return [item["interaction_id"] for item in self.page(author, **asked)["items"]]

    def page(self, author: str = "ann", **asked: Any) -> dict[str, Any]:
        answer = self.http.get("/review/items", params={"task": TASK, "author": author, **asked})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def say(self, about: str, author: str = "ann", **fact: Any) -> str:
        """Post a reviewer's feedback and return its id."""
        fact = {"kind": "label", "text": "sales"} | fact
        body = {"interaction_id": about, "task": TASK, "source": "reviewer", "author": author, **fact}
        answer = self.http.post("/v1/feedback", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def intake(self) -> None:
        """What the sensors do from time to time."""
        run_intake(self.wheel.config, self.wheel.home, self.wheel.registry, TASK)
        run_labels(self.wheel.config, self.wheel.home, self.wheel.registry, TASK)


@pytest.fixture
def make_desk(make_wheel: Any, traffic_of: Any, gateway_of: Any) -> Iterator[Callable[..., Desk]]:
    """``make_desk(*numbers of calls or records, scopes=())`` -> a `Desk` with a key for each scope; all its calls are
    audited."""
    clients = []

    def make(*calls: Any, scopes: tuple[str, ...] = ()) -> Desk:
        wheel = make_wheel()
        wheel.set(**ELSEWHERE, labels=ALL_AUDITED)
        traffic = traffic_of(wheel.home)
        traffic.write(*(traffic.call(call) if isinstance(call, int) else call for call in calls))
        keys = {scope: create_key(wheel.registry, scope, [scope]) for scope in scopes}
        clients.append(httpx.Client(base_url=gateway_of(wheel.config), trust_env=False, timeout=30))
        desk = Desk(wheel, clients[-1], keys)
        desk.intake()
        return desk

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def records(traffic_of: Any) -> Any:
    """Makes records of the log, and writes none."""
    return traffic_of(None)


@pytest.fixture
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request looks into the store anew."""
    monkeypatch.setattr(review_desk, "LOOK_AGAIN_S", 0.0)


def test_a_label_goes_from_the_queue_over_http_and_intake_into_the_evaluation(make_desk: Any) -> None:
    desk = make_desk(0, 1)
    first, second = sorted(desk.items())
    desk.say(first, text="sales")
    desk.say(second, kind="thumb", value=False, text=None)
    desk.intake()
    labels = {row["target_id"]: row for row in current_labels(desk.wheel.home, desk.wheel.registry, TASK)}
    assert (labels[first]["use"], labels[first]["chosen"]) == ("eval", "sales")
    assert labels[first]["label_source"] == "reviewer"
    assert (labels[second]["use"], labels[second]["chosen"]) == ("none", "")


def test_an_item_is_what_was_said_and_what_the_model_answered(make_desk: Any, records: Any) -> None:
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]
    call = records.call(3, "billing", request={"messages": [*said, {"role": "user", "content": "my bill"}]})
    (item,) = make_desk(call).page()["items"]
    assert item == {
        "interaction_id": records.call_id(3),
        "why": "audit",
        "turns": [
            {"role": "user", "text": "hi"},
            {"role": "assistant", "text": "yes?"},
            {"role": "user", "text": "my bill"},
        ],
        "answer": "billing",
    }


def test_a_message_of_any_shape_is_shown_as_text() -> None:
    parts = [{"type": "text", "text": "look:"}, {"type": "image_url", "image_url": {"url": "x"}}, 7]
    assert plain_turn({"role": "user", "content": parts}) == {"role": "user", "text": "look:\n[image_url]\n7"}
    calls = [{"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}, "odd"]
    assert plain_turn({"role": "assistant", "content": None, "tool_calls": calls})["text"] == 'find({"a": 1})\n"odd"'
    assert plain_turn({"content": ""}) == {"role": "", "text": ""}
    assert plain_turn("odd") == {"role": "", "text": '"odd"'}
    long = plain_turn({"role": "user", "content": "x" * (LONGEST_TURN + 5)})["text"]
    assert long.startswith("x" * LONGEST_TURN) and long.endswith("[... 5 more characters]")


def test_what_one_reviewer_has_labelled_is_not_handed_to_another_though_no_intake_ran(make_desk: Any) -> None:
    desk = make_desk(0, 1, 2)
    about = desk.items()[0]
    desk.say(about)
    for author in ("ann", "bob"):
        page = desk.page(author)
        assert about not in {item["interaction_id"] for item in page["items"]} and page["waiting"] == 2


def test_a_label_that_was_taken_back_waits_again(make_desk: Any) -> None:
    desk = make_desk(0, 1)
    about = desk.items()[0]
    label = desk.say(about)
    desk.say(about, kind="comment", text="taken back", supersedes=label)
    page = desk.page()
    assert (len(page["items"]), page["waiting"], page["labelled_today"]) == (2, 2, 0)


def test_a_comment_labels_nothing(make_desk: Any) -> None:
    desk = make_desk(0)
    desk.say(desk.items()[0], kind="comment", text="hard to tell")
    assert len(desk.items()) == 1


@pytest.mark.usefixtures("looks_at_once")
def test_the_count_of_today_is_each_reviewers_own_and_the_same_after_intake(make_desk: Any) -> None:
    desk = make_desk(0, 1, 2, 3)
    ids = desk.items()
    for about in ids[:2]:
        desk.say(about)
    desk.say(ids[0], kind="thumb", value=False, text=None)  # on the same answer
    desk.say(ids[2], "bob")

    def counts() -> list[int]:
        return [desk.page(author)["labelled_today"] for author in ("ann", "bob", "eve")]

    assert counts() == [2, 1, 0]
    desk.intake()
    assert counts() == [2, 1, 0]
    assert desk.items() == ids[3:]


def test_two_reviewers_begin_at_different_places_and_see_the_same_items(make_desk: Any) -> None:
    desk = make_desk(*range(30))
    ann, bob = desk.items("ann", limit=100), desk.items("bob", limit=100)
    assert ann != bob and sorted(ann) == sorted(bob)
    assert ann[: ann.index(bob[0])] == bob[-ann.index(bob[0]) :], "each goes on where the other began"
    assert desk.items("ann", limit=7) == ann[:7] == desk.items(" ann ", limit=7)


def test_answers_that_come_from_a_small_set_are_listed_to_choose_from(make_desk: Any, records: Any) -> None:
    labels = [records.feedback(number, text=("sales", "billing")[number % 2]) for number in range(4)]
    desk = make_desk(*range(6), *labels)
    assert desk.page()["choices"] == ["billing", "sales"]


def test_the_store_is_read_on_a_thread_and_seldom(make_desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = make_desk(0, 1)
    reading, go_on, reads = threading.Event(), threading.Event(), []

    def slow(*arguments: Any) -> Any:
        reads.append(threading.current_thread())
        reading.set()
        assert go_on.wait(30)
        return read_review(*arguments)

    monkeypatch.setattr(review_desk, "read_review", slow)
    askers = [threading.Thread(target=desk.items) for _ in range(3)]
    for asker in askers:
        asker.start()
    assert reading.wait(30)
    assert desk.http.get("/healthz").status_code == 200, "others are answered meanwhile"
    go_on.set()
    for asker in askers:
        asker.join(30)
    assert len(desk.items()) == 2
    assert len(reads) == 1, "one look serves all"


def test_a_reviewers_key_opens_the_review_and_nothing_else(make_desk: Any) -> None:
    desk = make_desk(0, scopes=("review", "feedback", "read", "operate"))
    desk.http.headers["authorization"] = f"Bearer {desk.keys['review']}"
    desk.say(desk.items()[0])
    assert desk.http.get("/admin/status").status_code == desk.http.get("/metrics").status_code == 403
    for holder, status in (("operate", 200), ("feedback", 403), ("read", 403), ("nobody", 401)):
        headers = {"authorization": f"Bearer {desk.keys.get(holder, 'fw-wrong')}"}
        answer = desk.http.get("/review/items", params={"author": "ann"}, headers=headers)
        assert answer.status_code == status
        assert ("items" in answer.json()) == (status == 200)


def test_a_page_whose_name_was_made_to_point_here_gets_nothing_from_a_gateway_without_keys(make_desk: Any) -> None:
    desk = make_desk(0)

    def status(**headers: str) -> int:
        return int(desk.http.get("/review/items", params={"author": "ann"}, headers=headers).status_code)

    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "["):
        assert status(host=host) == 403, host
    for host in ("localhost", "localhost:8000", "127.0.0.1", "[::1]:8000"):
        assert status(host=host) == 200, host
    assert status(origin="https://evil.example") == 403


def test_with_a_key_the_queue_may_be_asked_for_by_any_name(make_desk: Any) -> None:
    desk = make_desk(0, scopes=("review",))
    desk.http.headers.update({"host": "review.example", "authorization": f"Bearer {desk.keys['review']}"})
    assert len(desk.items()) == 1


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"task": TEXT, "author": "ann"}, "task"),
        ({"task": TASK}, "author"),
        ({"task": TASK, "author": "  "}, "author"),
        ({"task": TASK, "author": TEXT * 50}, "author"),
        ({"author": "ann", "limit": "0"}, "limit"),
        ({"author": "ann", "limit": TEXT}, "limit"),
        ({"author": "ann", "limit": "501"}, "limit"),
    ],
)
def test_what_is_asked_wrongly_is_named_and_not_quoted(make_desk: Any, asked: dict[str, str], param: str) -> None:
    answer = make_desk(0).http.get("/review/items", params=asked)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert TEXT not in answer.text


@pytest.mark.usefixtures("looks_at_once")
def test_a_store_that_cannot_be_read_is_a_plain_500_without_what_is_in_it(
    make_desk: Any, records: Any, caplog: pytest.LogCaptureFixture
) -> None:
    desk = make_desk(records.call(0, TEXT, text=TEXT))
    assert TEXT in str(desk.page())
    for path in desk.wheel.home.data.rglob("*.parquet"):
        path.write_bytes(TEXT.encode() * 100)
    answer = desk.http.get("/review/items", params={"author": "ann"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert TEXT not in answer.text and TEXT not in caplog.text
