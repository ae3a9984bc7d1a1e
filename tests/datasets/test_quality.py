"""What teaches nothing good whoever approved of it."""

from __future__ import annotations

from typing import Any

import pytest

from flywheel.datasets.quality import loops, screen
from flywheel.datasets.rows import KTO, make_row

ASKED = "where is my parcel, it was due on monday"


def fault(answer: str | dict[str, Any], asked: str = ASKED, **about: Any) -> dict[str, int]:
    message = {"role": "assistant", "content": answer} if isinstance(answer, str) else {"role": "assistant", **answer}
    kept, dropped = screen([make_row([{"role": "user", "content": asked}], message, None, **about)])
    assert len(kept) + dropped.total() == 1
    return dict(dropped)


def call(arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"type": "function", "function": {"name": "find", "arguments": arguments}}]}


@pytest.mark.parametrize("answer", ["on its way", "yes", "no no no", call("{}"), call(""), call({"a": 1})])
def test_ordinary_answers_stay(answer: Any) -> None:
    assert fault(answer) == {}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("I am sorry to hear " * 6, "repetitive_answer"),
        (ASKED.upper(), "echo"),
        ("on its w\ufffdy", "broken_text"),
        (call("{not json"), "broken_call"),
        (call("[1]"), "broken_call"),
    ],
)
def test_faults_are_named(answer: Any, reason: str) -> None:
    assert fault(answer) == {reason: 1}


def test_a_short_answer_may_repeat_the_question() -> None:
    assert fault("billing", asked="billing") == {}


def test_one_broken_character_in_a_long_text_is_no_fault() -> None:
    assert fault("on its way", asked="\ufffd" + ASKED * 5) == {}
    assert fault("on its way", asked="\ufffd" + ASKED) == {"broken_text": 1}


def test_what_was_found_bad_may_be_bad() -> None:
    bad = {"kind": KTO, "desirable": False}
    assert fault("I am sorry to hear " * 6, **bad) == {}
    assert fault("I am sorry to hear " * 6, kind=KTO, desirable=True) == {"repetitive_answer": 1}
    assert fault("on its w\ufffdy", **bad) == {"broken_text": 1}


def test_words_that_come_back_later_are_no_loop() -> None:
    assert loops("a b c d " * 4) and not loops("a b c d " * 3 + "e")
    assert loops("well " * 16) and not loops("well " * 15)
    assert loops("so: " + "one two three four five " * 4) and not loops("one two three four five " * 3)
