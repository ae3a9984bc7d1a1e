from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flywheel.datasets.prompts import clean, normalise, prompt_key, prompt_text, target_text, with_prompt

USER = {"role": "user", "content": "Where is my CARD?"}


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


def test_half_a_surrogate_pair_does_not_break_normalising() -> None:
    assert normalise("caf\ud800é") == "caf?é"


def test_system_messages_are_not_part_of_the_text_but_of_the_key() -> None:
    plain, told = [USER], [{"role": "system", "content": "Be brief."}, USER]
    assert prompt_text(plain) == prompt_text(told) == "where is my card?"
    assert prompt_key(plain) != prompt_key(told)


def test_an_earlier_turn_changes_what_a_short_answer_means() -> None:
    yes = {"role": "user", "content": "yes please"}
    first = [USER, {"role": "assistant", "content": "Shall I block it?"}, yes]
    second = [USER, {"role": "assistant", "content": "Shall I close the account?"}, yes]
    assert prompt_text(first) != prompt_text(second)


def test_tools_are_part_of_the_key() -> None:
    assert prompt_key([USER], [{"type": "function"}]) != prompt_key([USER])


def test_text_parts_read_like_text_and_pictures_tell_apart() -> None:
    def shown(url: str) -> list[dict[str, object]]:
        return [
            {"role": "user", "content": [{"type": "text", "text": "what is it"}, {"type": "image_url", "url": url}]}
        ]

    assert prompt_text([{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]) == "hello"
    assert prompt_text(shown("a.png")) != prompt_text(shown("b.png"))


def test_tool_call_ids_do_not_tell_answers_apart() -> None:
    def call(name: str) -> dict[str, object]:
        return {"role": "assistant", "tool_calls": [{"id": name, "function": {"name": "block", "arguments": "{}"}}]}

    assert target_text(call("call_1")) == target_text(call("call_2")) != ""


def test_the_task_prompt_goes_first_unless_the_caller_brought_one() -> None:
    assert with_prompt([USER], "Route it.") == [{"role": "system", "content": "Route it."}, USER]
    own = [{"role": "developer", "content": "Mine."}, USER]
    assert with_prompt(own, "Route it.") == own
    assert with_prompt([USER], None) == [USER]


def test_transport_fields_do_not_reach_an_example() -> None:
    assert clean([{**USER, "name": None, "audio": {"id": 1}}]) == [USER]
