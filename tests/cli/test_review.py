"""``flywheel review`` as a script drives it, line by line, against a real gateway."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from flywheel.cli.review_loop import many_lines, one_line
from flywheel.intake import run_intake
from flywheel.labels import run_labels

TASK = "support_router"
ELSEWHERE = {"engine": "http://127.0.0.1:9/v1", "base": "acme/model"}  # no test asks it for an answer
ALL_AUDITED = {"maturity_hours": 0, "audit_share": 1, "gate_labels": ["reviewer"]}


@dataclass
class Reviewing:
    """A deployment with a running gateway, and a reviewer at its terminal."""

    wheel: Any
    flywheel: Callable[..., Any]
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *lines: str, author: str = "ann", code: int = 0) -> str:
        """What the terminal shows when these lines are typed."""
        self.monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        ran = self.flywheel("review", "-t", TASK, "--author", author, "-c", self.wheel.path)
        assert ran.code == code, ran.err
        return str(ran.out + ran.err)

    def records(self) -> list[dict[str, Any]]:
        """What reviewers have said so far, as the log has it, oldest first."""
        lines = [line for path in sorted(self.wheel.home.log.glob("*.jsonl")) for line in path.read_text().splitlines()]
        return [record for record in map(json.loads, lines) if record.get("source") == "reviewer"]

    def said(self) -> list[tuple[str, Any]]:
        """The same as (kind, value or text)."""
        facts = [record["feedback"] for record in self.records()]
        return [(fact["kind"], fact["text"] if fact["value"] is None else fact["value"]) for fact in facts]

    def intake(self) -> None:
        run_intake(self.wheel.config, self.wheel.home, self.wheel.registry, TASK)
        run_labels(self.wheel.config, self.wheel.home, self.wheel.registry, TASK)


@pytest.fixture
def records(traffic_of: Any) -> Any:
    """Makes records of the log, and writes none."""
    return traffic_of(None)


@pytest.fixture
def make_review(
    make_wheel: Any, traffic_of: Any, gateway_of: Any, flywheel: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Reviewing]:
    """``make_review(*numbers of calls or records)`` -> `Reviewing`; all calls are audited."""
    monkeypatch.setenv("COLUMNS", "80")

    def make(*calls: Any) -> Reviewing:
        wheel = make_wheel()
        wheel.set(**ELSEWHERE, labels=ALL_AUDITED)
        traffic = traffic_of(wheel.home)
        traffic.write(*(traffic.call(call) if isinstance(call, int) else call for call in calls))
        reviewing = Reviewing(wheel, flywheel, monkeypatch)
        reviewing.intake()
        gateway_of(wheel.config)
        return reviewing

    return make


def test_one_key_says_that_the_answer_is_right(make_review: Any) -> None:
    review = make_review(0, 1, 2)
    shown = review("y", "y", "q")
    assert review.said() == [("label", "billing"), ("label", "billing")]
    assert "1 of 3, 0 labelled today" in shown and "3 of 3, 2 labelled today" in shown
    assert "audit sample" in shown and "message 0" in shown and "2 labelled, 0 skipped" in shown
    assert {record["author"] for record in review.records()} == {"ann"}
    assert {record["task"] for record in review.records()} == {TASK}


def test_a_wrong_answer_gets_the_right_one_or_none_that_the_reviewer_knows(make_review: Any) -> None:
    review = make_review(0, 1, 2)
    review("n", "sales", "n", "", "e", "refunds\\nand \\\\ more")
    assert review.said() == [("label", "sales"), ("thumb", False), ("label", "refunds\nand \\ more")]


def test_an_edit_without_a_text_leads_back_to_the_item(make_review: Any) -> None:
    review = make_review(0)
    review("e", "", "y")
    assert review.said() == [("label", "billing")]


def test_where_answers_come_from_a_small_set_one_key_names_the_right_one(make_review: Any, records: Any) -> None:
    labels = [records.feedback(number, text=("refunds", "sales")[number % 2]) for number in range(4)]
    review = make_review(*range(8), *labels)
    shown = review("2", "n", "1", "n", "n", "n", "e", "cards", "n", "x", "y")
    assert "1 refunds   2 sales" in shown
    assert review.said() == [
        ("label", "sales"),
        ("label", "refunds"),
        ("thumb", False),
        ("label", "cards"),
        ("label", "billing"),
    ]


def test_an_answer_without_text_is_right_by_a_thumb(make_review: Any, records: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    review = make_review(records.call(0, choices=choices))
    assert "(no text)" in review("y")
    assert review.said() == [("thumb", True)]


def test_what_was_skipped_is_left_for_another_sitting(make_review: Any) -> None:
    review = make_review(0, 1)
    shown = review("s", "y", "q")
    assert "nothing waits for review but what you skipped" in shown and "1 labelled, 1 skipped" in shown
    assert "2 of 2" in shown
    assert review.said() == [("label", "billing")]
    review("y")
    assert len({record["target"]["id"] for record in review.records()}) == 2


def test_undo_takes_the_last_step_back_and_asks_again(make_review: Any) -> None:
    review = make_review(0, 1)
    shown = review("u", "y", "s", "u", "u", "n", "sales", "q")
    assert "there is nothing to undo" in shown
    first, undone, second = review.records()
    assert undone["supersedes"] == first["id"] and undone["feedback"]["kind"] == "comment"
    assert first["target"] == undone["target"] == second["target"]
    review.intake()
    shown = review("q")
    assert "1 of 1, 1 labelled today" in shown


def test_the_last_label_of_the_queue_can_be_taken_back_too(make_review: Any) -> None:
    review = make_review(0)
    review("y", "u", "n", "sales", "q")
    assert [kind for kind, _ in review.said()] == ["label", "comment", "label"]


def test_nobody_is_asked_again_about_what_was_labelled_before_the_next_intake(make_review: Any) -> None:
    review = make_review(*range(25))
    review(*["y"] * 60)
    assert len(review.said()) == 25, "more than one batch, each item once"
    for author in ("ann", "bob"):
        assert "nothing waits for review" in review("y", author=author)
    assert len(review.said()) == 25


def test_two_reviewers_do_not_begin_with_the_same_item(make_review: Any) -> None:
    review = make_review(*range(30))
    review("y", author="ann")
    review("y", author="bob")
    first, second = (record["target"]["id"] for record in review.records())
    assert abs(int(first[-4:], 16) - int(second[-4:], 16)) > 1


def test_an_unknown_key_and_a_refusal_leave_the_item_where_it_is(make_review: Any) -> None:
    review = make_review(0)
    shown = review("what?", "e", "\\n", "y")
    assert "'what?' is none of the keys" in shown
    assert "not stored: " in shown and "label needs `text`" in shown
    assert review.said() == [("label", "billing")]


def test_everything_fits_80_columns_and_long_texts_are_cut_until_all_is_asked_for(
    make_review: Any, records: Any
) -> None:
    roles = ("system", "user", "assistant", "user", "assistant")
    early = [{"role": role, "content": f"{role} said " + "much " * 200} for role in roles]
    last = {"role": "user", "content": "最後 " * 30 + "word" * 400 + "\nEND OF MESSAGE"}
    call = records.call(0, "answer " * 2000 + "END OF ANSWER", request={"messages": [*early, last]})
    review = make_review(call)
    cut, whole = review("q"), review("+", "q")
    for shown in (cut, whole):
        assert all(cell_len(line) <= 80 for line in shown.splitlines())
    assert "more lines, + shows them" in cut and "END OF MESSAGE" not in cut and "END OF ANSWER" not in cut
    assert "2 earlier messages, + shows them" in cut and "system said" not in cut
    assert len(cut.splitlines()) < 60
    assert all(text in whole for text in ("END OF MESSAGE", "END OF ANSWER", "system said"))


def test_no_text_of_the_log_steers_the_terminal(make_review: Any, records: Any) -> None:
    hostile = "[/bold]:smile:\x1b[2J\x1b]0;title\x07\rover\u202eabc\x9b31m"
    messages = [{"role": hostile, "content": hostile}, {"role": "user", "content": hostile}]
    slips = [records.feedback(number, text=hostile[:40]) for number in (1, 2)]
    review = make_review(records.call(0, hostile, request={"messages": messages}), 1, 2, *slips)
    shown = review("s", "s", "n", "n", "q")
    assert "[/bold]:smile:\\x1b[2J" in shown
    assert not set("\x1b\x07\r\u202e\x9b") & set(shown)


def test_without_a_gateway_or_a_task_it_says_what_is_missing(make_wheel: Any, flywheel: Any) -> None:
    wheel = make_wheel()
    ran = flywheel("review", "-t", TASK, "-c", wheel.path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: no gateway runs on this home; start one with `flywheel up` or `flywheel serve`\n"
    ran = flywheel("review", "-c", wheel.path)
    assert ran.code == 2 and "--task" in ran.err


@given(st.text())
def test_a_text_is_the_same_after_it_was_edited_as_one_line(text: str) -> None:
    line = one_line(text)
    assert many_lines(line) == text
    assert line.isprintable() or not set(line) & set(map(chr, range(32)))


def test_a_backslash_that_begins_nothing_stays_one() -> None:
    assert many_lines(r"C:\dir \U00110000 \x1") == r"C:\dir \U00110000 \x1"
