"""The judge behind a real HTTP endpoint: both orders, what is no verdict, and what a broken endpoint does."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flywheel.errors import ConfigError
from flywheel.intake import intake_digest, run_intake
from flywheel.labels import current_labels, run_labels
from flywheel.labels.verify import endpoint, judging, run_verifiers, verifiers_due
from flywheel.labels.verify.prompt import SIDES, VERDICTS, read_reply

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def judged(make_deployment: Callable[..., Any], judge_server: Any) -> Callable[..., Any]:
    """``judged(**judge)``: a deployment, always the same, whose judge sees every answer unless told otherwise."""

    def make(name: str = "d", **judge: Any) -> Any:
        entry = {"endpoint": judge_server.url, "model": "big", "share": 1, **judge}
        labels = {"maturity_hours": 0, "audit_share": 0, "judge": entry}
        deployment = make_deployment(name, task={"labels": labels})
        (deployment.home.root / "secret.key").write_bytes(b"k" * 32)
        return deployment

    return make


def take_in(at: Any) -> None:
    run_intake(at.config, at.home, at.registry, at.task)


def run(at: Any, now: datetime = NOW) -> Any:
    return run_verifiers(at.config, at.home, at.registry, at.task, now=now)


def judge_of(report: Any) -> dict[str, int]:
    return dict(report.authors["judge/judge"].words)


def by_content(asked: Any) -> str:
    """Good is whatever says billing."""
    return "GOOD" if asked.shown["answer"]["content"] == "billing" else "BAD"


def test_each_answer_is_asked_about_in_both_orders(judged: Any, traffic_of: Any, judge_server: Any, words: Any) -> None:
    at = judged(rubric="The queue is {right}.")
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0, "billing", text="My card?"), traffic.call(1, "sales"))
    take_in(at)
    judge_server.answer = by_content
    assert judge_of(run(at)) == {"right": 1, "wrong": 1}
    assert [(row["value"], row["author_key"], row["kind"]) for row in words(at, "judge")] == [
        (True, "judge", "outcome"),
        (False, "judge", "outcome"),
    ]
    about = [asked for asked in judge_server.asked if asked.shown["answer"]["content"] == "billing"]
    assert sorted(asked.options for asked in about) == [["BAD", "GOOD"], ["GOOD", "BAD"]]
    for asked in about:
        assert asked.shown["conversation"] == [{"role": "user", "content": "My card?"}]
        assert "The queue is {right}." in asked.task
        assert (asked.body["model"], asked.body["temperature"]) == ("big", 0)


def test_the_judge_sees_neither_users_nor_ids(judged: Any, traffic_of: Any, judge_server: Any) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    messages = [{"role": "user", "name": "Ada", "content": "Where?"}]
    request = {"messages": messages, "tools": None, "params": {"user": "USERMARK", "temperature": 1}}
    traffic.write(traffic.call(0, request=request, user="USERMARK", conversation_id="TALK", metadata={"who": "Ada"}))
    take_in(at)
    run(at)
    sent = json.dumps([asked.body for asked in judge_server.asked])
    assert len(judge_server.asked) == 2
    assert not any(mark in sent for mark in ("Ada", "USERMARK", "TALK", traffic.call_id(0)))


def test_tools_and_their_calls_are_shown(judged: Any, traffic_of: Any, judge_server: Any) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    call = {"id": "t1", "type": "function", "function": {"name": "refund", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    request = {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}], "params": {}}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    traffic.write(traffic.call(0, request=request, choices=choices))
    take_in(at)
    assert judge_of(run(at)) == {"right": 1}
    shown = judge_server.asked[0].shown
    assert shown["tools"] == [{"type": "function"}] and shown["answer"]["tool_calls"] == [call]


def test_an_answer_with_content_that_is_no_text_is_not_judged(judged: Any, traffic_of: Any, judge_server: Any) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    traffic.write(traffic.call(0, request={"messages": picture, "tools": None, "params": {}}))
    take_in(at)
    assert run(at).said == 0 and judge_server.asked == []


def test_a_verdict_that_the_order_decides_is_none_and_is_counted(
    judged: Any, traffic_of: Any, judge_server: Any, words: Any
) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0), traffic.call(1))
    take_in(at)
    judge_server.answer = lambda asked: asked.options[0]
    report = run(at)
    assert judge_of(report) == {"flip": 2} and [row["value"] for row in words(at, "judge")] == ["flip", "flip"]
    assert run_labels(at.config, at.home, at.registry, at.task, now=NOW).total == 0
    (row,) = report.judges
    assert (row["judged"], row["flips"], row["unreadable"]) == (0, 2, 0)


def test_replies_that_cannot_be_read_are_excluded_and_counted_and_not_asked_for_again(
    judged: Any, traffic_of: Any, judge_server: Any
) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(*(traffic.call(number) for number in range(3)))
    take_in(at)
    judge_server.answer = lambda asked: "GOOD" if asked.options[0] == "GOOD" else "GOOD, because it is polite"
    report = run(at)
    assert judge_of(report) == {"unreadable": 3} and report.judges[0]["unreadable"] == 3
    assert run(at).said == 0 and len(judge_server.asked) == 6
    assert run_labels(at.config, at.home, at.registry, at.task, now=NOW).total == 0


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        ("GOOD", "GOOD"),
        (" bad.\n", "BAD"),
        ('{"verdict": "good"}', "GOOD"),
        ('{"why": "polite", "verdict": "BAD"}', "BAD"),
        ("<think>Is it GOOD?\nNo.</think>\nBAD", "BAD"),
        ("", None),
        ("GOOD BAD", None),
        ("**GOOD**", None),
        ("The answer is GOOD", None),
        ('{"verdict": true}', None),
        ('{"verdict": "GOOD"', None),
        ('["GOOD"]', None),
        ("A", None),
    ],
)
def test_a_reply_is_one_word_or_an_object_with_a_verdict(reply: str, word: str | None) -> None:
    assert read_reply(reply, VERDICTS) == word


def test_of_two_answers_a_letter_is_read() -> None:
    assert [read_reply(reply, SIDES) for reply in ("A", "b.", "C", "GOOD")] == ["A", "B", None, None]


def two_choices(traffic: Any, number: int, *texts: str, **fields: Any) -> dict[str, Any]:
    said = [{"role": "assistant", "content": text} for text in texts]
    choices = [{"index": place, "message": own, "finish_reason": "stop"} for place, own in enumerate(said)]
    return dict(traffic.call(number, choices=choices, **fields))


def longer(asked: Any) -> str:
    """Of two answers the longer one is better; single ones are all good."""
    shown = asked.shown
    return "GOOD" if "answer" in shown else max("AB", key=lambda side: len(shown[side]["content"]))


def test_choices_of_one_call_are_compared_in_both_orders(
    judged: Any, traffic_of: Any, judge_server: Any, words: Any
) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(two_choices(traffic, 0, "no", "billing"))
    take_in(at)
    judge_server.answer = longer
    assert judge_of(run(at)) == {"right": 2, "preferred": 1}
    (row,) = [row for row in words(at, "judge") if row["kind"] == "preference"]
    assert row["target_id"] == f"{traffic.call_id(0)}#1" and row["value"] == {"chosen": "billing", "rejected": "no"}
    orders = [asked.shown for asked in judge_server.asked if "A" in asked.shown]
    assert sorted(shown["A"]["content"] for shown in orders) == ["billing", "no"]
    assert run(at).said == 0


def test_an_answer_that_came_instead_of_another_is_compared_with_it(
    judged: Any, traffic_of: Any, judge_server: Any, words: Any
) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    again = {"text": "Where?", "conversation_id": "talk"}
    traffic.write(traffic.call(0, "no", **again), traffic.call(1, "billing", **again), traffic.call(2, "other"))
    take_in(at)
    judge_server.answer = longer
    run(at)
    (row,) = [row for row in words(at, "judge") if row["kind"] == "preference"]
    assert (row["target_id"], row["value"]["chosen"]) == (traffic.call_id(1), "billing")


@pytest.mark.parametrize(("reply", "counted"), [("A", "flip"), ("neither", "unreadable")])
def test_two_answers_of_which_none_is_better_in_both_orders_are_a_tie(
    judged: Any, traffic_of: Any, judge_server: Any, words: Any, reply: str, counted: str
) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(two_choices(traffic, 0, "no", "billing"))
    take_in(at)
    judge_server.answer = lambda asked: reply if "A" in asked.shown else "GOOD"
    assert judge_of(run(at)) == {"right": 2, counted: 1}
    run_labels(at.config, at.home, at.registry, at.task, now=NOW)
    assert {row["use"] for row in current_labels(at.home, at.registry, at.task)} <= {"none", "sft", "kto"}


def test_only_a_share_is_judged_and_a_larger_one_contains_it(
    judged: Any, traffic_of: Any, judge_server: Any, words: Any
) -> None:
    at = judged(share=0.3)
    traffic = traffic_of(at.home)
    traffic.write(*(traffic.call(number) for number in range(100)))
    take_in(at)
    run(at)
    first = {row["target_id"] for row in words(at, "judge")}
    assert first == {traffic.call_id(n) for n in range(100) if at.home.audited(traffic.call_id(n), 0.3)}
    assert 15 < len(first) < 45
    wider = judged(share=0.6)
    run(wider)
    rows = words(wider, "judge")
    assert first < {row["target_id"] for row in rows} and len(rows) == len({row["target_id"] for row in rows})
    judge_server.asked.clear()
    assert run(judged(share=0)).said == 0 and judge_server.asked == []


def test_at_most_so_many_are_asked_in_a_run_and_the_rest_in_the_next(
    judged: Any, traffic_of: Any, judge_server: Any, words: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "ROUND", 2)
    at = judged(max_per_run=3)
    traffic = traffic_of(at.home)
    traffic.write(two_choices(traffic, 0, "no", "billing"), *(traffic.call(number) for number in range(1, 5)))
    take_in(at)
    judge_server.answer = longer
    report = run(at)
    assert report.said == 3 and report.left and len(judge_server.asked) == 6
    policy = at.config.task(at.task).labels
    assert not verifiers_due(at.registry, at.task, policy, NOW)
    assert verifiers_due(at.registry, at.task, policy, NOW + timedelta(minutes=10))
    while run(at).left:
        pass
    assert len(words(at, "judge")) == 7 and len(judge_server.asked) == 14


def test_a_changed_rubric_makes_another_judge_and_another_address_does_not(
    judged: Any, traffic_of: Any, judge_server: Any, words: Any
) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0))
    take_in(at)
    run(at)
    assert run(judged(endpoint=judge_server.url.replace("127.0.0.1", "localhost"))).said == 0
    judge_server.answer = lambda asked: "BAD"
    assert run(judged(rubric="It must be polite.")).said == 1
    assert [row["value"] for row in words(at, "judge")] == [True, False]


@pytest.mark.parametrize("trouble", [429, 500, 503, (429, {"retry-after": "0"})])
def test_a_busy_endpoint_is_asked_again(judged: Any, traffic_of: Any, judge_server: Any, trouble: Any) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0), traffic.call(1))
    take_in(at)
    replies: list[Any] = [trouble] * 4
    judge_server.answer = lambda asked: replies.pop() if replies else "GOOD"
    assert judge_of(run(at)) == {"right": 2}


def test_a_pause_that_the_endpoint_asks_for_is_kept(judged: Any, traffic_of: Any, judge_server: Any) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0))
    take_in(at)
    replies: list[Any] = [(429, {"retry-after": "0.5"})] * 2
    judge_server.answer = lambda asked: replies.pop() if replies else "GOOD"
    began = time.monotonic()
    assert judge_of(run(at)) == {"right": 1}
    assert time.monotonic() - began >= 0.5


def test_no_more_than_so_many_requests_are_under_way(judged: Any, traffic_of: Any, judge_server: Any) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(*(traffic.call(number) for number in range(20)))
    take_in(at)
    lock, now, most = threading.Lock(), 0, 0

    def slow(asked: Any) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1
        return "GOOD"

    judge_server.answer = slow
    assert judge_of(run(at)) == {"right": 20}
    assert 1 < most <= endpoint.AT_ONCE


def dead_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("gone", "got ConnectError from its endpoint"),
        (401, "got HTTP 401 from its endpoint"),
        (404, "got HTTP 404 from its endpoint"),
        (503, "got HTTP 503 from its endpoint"),
        ((429, {"retry-after": "3600"}), "got HTTP 429 from its endpoint"),
        (b"<html>SECRET</html>", "got something that is no chat completion from its endpoint"),
        (b'{"choices": []}', "got something that is no chat completion from its endpoint"),
    ],
    ids=str,
)
def test_an_endpoint_that_is_gone_ends_the_judging_with_a_note_and_loses_nothing(
    judged: Any, traffic_of: Any, judge_server: Any, words: Any, trouble: Any, told: str
) -> None:
    at = judged(**({"endpoint": f"http://127.0.0.1:{dead_port()}/v1"} if trouble == "gone" else {}))
    traffic = traffic_of(at.home)
    traffic.write(*(traffic.call(number) for number in range(20)))
    take_in(at)
    judge_server.answer = lambda asked: trouble
    report = run(at)
    assert report.left and report.said == 0
    assert report.notes == [f"judge: {told}; labels go on without it, and a later run asks on"]
    assert len(judge_server.asked) <= endpoint.AT_ONCE * endpoint.TRIES, "the rest is not even tried"
    run_labels(at.config, at.home, at.registry, at.task, now=NOW)
    judge_server.answer = lambda asked: "GOOD"
    assert judge_of(run(judged())) == {"right": 20}
    assert len(words(at, "judge")) == 20


def test_what_was_judged_before_an_endpoint_went_is_kept(
    judged: Any, traffic_of: Any, judge_server: Any, words: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "ROUND", 2)
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(*(traffic.call(number) for number in range(6)))
    take_in(at)
    judge_server.answer = lambda asked: "GOOD" if len(judge_server.asked) <= 4 else 500
    report = run(at)
    assert report.left and report.said == 2 and len(words(at, "judge")) == 2


def test_a_question_that_is_refused_is_not_asked_again_unless_all_are(
    judged: Any, traffic_of: Any, judge_server: Any, words: Any
) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(*(traffic.call(number, "long" * (number == 1)) for number in range(3)))
    take_in(at)
    judge_server.answer = lambda asked: 400
    report = run(at)
    assert report.left and report.said == 0, "an endpoint that takes nothing has not judged anything"
    judge_server.answer = lambda asked: 413 if asked.shown["answer"]["content"] == "long" else "GOOD"
    assert judge_of(run(at)) == {"right": 2, "refused": 1}
    assert run(at).said == 0


def test_the_key_is_sent_and_a_missing_one_is_an_error(
    judged: Any, traffic_of: Any, judge_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = judged(key_env="JUDGE_KEY_OF_TEST")
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0))
    take_in(at)
    with pytest.raises(ConfigError, match="the environment variable JUDGE_KEY_OF_TEST holds no key"):
        run(at)
    monkeypatch.setenv("JUDGE_KEY_OF_TEST", "sk-1")
    run(at)
    assert {asked.headers["authorization"] for asked in judge_server.asked} == {"Bearer sk-1"}


def test_nothing_that_is_judged_or_replied_is_logged(
    judged: Any, traffic_of: Any, judge_server: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0, "MARKANSWER", text="MARKPROMPT"))
    take_in(at)
    judge_server.answer = lambda asked: "MARKREPLY"
    report = run(at)
    told = caplog.text + "".join(capfd.readouterr()) + json.dumps(report.to_json())
    assert judge_of(report) == {"unreadable": 1} and "MARK" not in told


def test_an_end_at_any_instant_leaves_the_same_verdicts_once(
    judged: Any, traffic_of: Any, judge_server: Any, words: Any, dies_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "ROUND", 2)
    judge_server.answer = lambda asked: longer(asked) if "A" in asked.shown else by_content(asked)
    digests = set()
    for name in ("undisturbed", "killed"):
        at = judged(name=name)
        traffic = traffic_of(at.home)
        traffic.write(two_choices(traffic, 0, "no", "billing"), *(traffic.call(number) for number in range(1, 6)))
        take_in(at)
        judge_server.asked.clear()
        kills = 0
        while name == "killed" and dies_at(kills, lambda at=at: run(at)):
            kills += 1
        run(at)
        digests.add(intake_digest(at.home, at.registry, at.task))
        assert len(words(at, "judge")) == 8
    assert kills > 5 and len(digests) == 1


def test_agreement_with_people_and_verifiers_is_measured(
    judged: Any, traffic_of: Any, judge_server: Any, flywheel: Any
) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    by = {"source": "reviewer", "author": "ann"}
    traffic.write(
        *(traffic.call(number, "billing" if number < 6 else "sales") for number in range(10)),
        # Ann: 0 to 3 right, 4 and 5 wrong, 6 wrong, 7 right.
        *(traffic.feedback(number, "label", text="billing", **by) for number in range(4)),
        *(traffic.feedback(number, "label", text="sales", **by) for number in (4, 5, 7)),
        traffic.feedback(6, "outcome", value=False, **by),
        traffic.feedback(8, "outcome", value=False, source="verifier", author="v"),
    )
    take_in(at)
    judge_server.answer = by_content
    (row,) = run(at).judges
    assert (row["judge"], row["of"], row["judged"]) == ("judge", "answers", 10)
    assert (row["compared"], row["agreed"]) == (8, 5)
    # po = 5/8; the judge says good 6/8, Ann 5/8: pe = 30/64 + 6/64.
    assert row["kappa"] == round((5 / 8 - 36 / 64) / (1 - 36 / 64), 4)
    assert (row["verifiers_compared"], row["verifiers_agreed"], row["verifiers_kappa"]) == (1, 1, None)


def test_agreement_is_measured_anew_when_a_reviewer_speaks(judged: Any, traffic_of: Any, judge_server: Any) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0))
    take_in(at)
    assert run(at).judges[0]["compared"] == 0
    traffic.write(traffic.feedback(0, "label", text="billing", source="reviewer"))
    take_in(at)
    asked = len(judge_server.asked)
    assert run(at).judges[0]["compared"] == 1 and len(judge_server.asked) == asked


def test_agreement_on_pairs_is_with_those_who_preferred_one_of_the_same_two(
    judged: Any, traffic_of: Any, judge_server: Any
) -> None:
    at = judged()
    traffic = traffic_of(at.home)
    said = [("no", "billing"), ("yes", "sales"), ("a", "other")]
    traffic.write(
        *(two_choices(traffic, number, *texts) for number, texts in enumerate(said)),
        traffic.feedback(0, "preference", value={"chosen": "billing", "rejected": "no"}),
        traffic.feedback(1, "preference", value={"chosen": "yes", "rejected": "sales"}),
        traffic.feedback(2, "preference", value={"chosen": "a", "rejected": "something else"}),
    )
    take_in(at)
    judge_server.answer = longer
    row = next(row for row in run(at).judges if row["of"] == "pairs")
    assert (row["judged"], row["compared"], row["agreed"]) == (3, 2, 1)
