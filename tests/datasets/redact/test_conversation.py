from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from flywheel.datasets.redact import Redacted
from flywheel.store.digests import canonical_json

Talk = Callable[..., Redacted]
Clean = Callable[..., str]


def test_a_value_is_the_same_surrogate_in_prompt_arguments_result_and_answer(talk: Talk) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "find_user", "arguments": '{"email": "ana.ruiz@acme.io"}'},
    }
    done = talk(
        {"role": "user", "content": "I am Ana.Ruiz@acme.io, where is my parcel?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"user": {"mail": "ana.ruiz@acme.io"}}'},
        {"role": "assistant", "content": "I wrote to ana.ruiz@acme.io."},
    )
    asked, called, result, answer = done.messages
    made = answer["content"].removeprefix("I wrote to ").removesuffix(".")
    assert made.endswith((".example.com", ".example.net", ".example.org"))
    assert asked["content"] == f"I am {made}, where is my parcel?"
    assert called["tool_calls"] == [{**call, "function": {"name": "find_user", "arguments": f'{{"email": "{made}"}}'}}]
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": f'{{"user": {{"mail": "{made}"}}}}'}
    assert done.counts == {"email": 4}


def test_another_conversation_another_value_and_another_key_give_another_surrogate(clean: Clean, talk: Talk) -> None:
    mails = {clean("ana@acme.io"), clean("ana@acme.io", conversation="d"), clean("eva@acme.io")}
    assert len(mails) == 3
    assert clean("ana@acme.io") == clean("ana@acme.io")


def test_one_value_keeps_its_surrogate_in_each_of_its_forms(talk: Talk) -> None:
    said = "4929 1234 5678 9015 4929-1234-5678-9015 4929123456789015"
    spaced, hyphens, bare = talk(said).messages[0]["content"].rsplit(maxsplit=2)
    assert spaced.replace(" ", "") == hyphens.replace("-", "") == bare
    assert [len(part) for part in spaced.split()] == [4, 4, 4, 4]
    mail, loud = talk("ana@acme.io ANA@ACME.IO").messages[0]["content"].split()
    assert loud == mail.upper()
    abroad, home = talk("+44 20 7946 0958 or 020 7946 0958").messages[0]["content"].split(" or ")
    assert abroad.removeprefix("+44 ") == home.removeprefix("0")


def test_what_the_prompt_calls_a_phone_is_one_in_the_answer_without_a_word(talk: Talk) -> None:
    said = "my number is 4158675309", '{"to": "4158675309", "order": 4158675308}'
    prompt, answer = (message["content"] for message in talk(*said).messages)
    made = prompt.removeprefix("my number is ")
    assert made != "4158675309"
    assert json.loads(answer) == {"to": made, "order": 4158675308}
    assert talk(said[1]).messages[0]["content"] == said[1]


def test_json_stays_the_json_that_it_was(talk: Talk) -> None:
    arguments = (
        '{ "b":"\\u00e9\\n+49 30 901820","a" : {"card": 4929123456789015, "q": "say \\"ana@acme.io\\"\\/"},\t"n":1.50}'
    )
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    (message,) = talk({"role": "assistant", "content": None, "tool_calls": [call]}).messages
    new = message["tool_calls"][0]["function"]["arguments"]
    before, after = json.loads(arguments), json.loads(new)
    assert list(after) == ["b", "a", "n"] and list(after["a"]) == ["card", "q"]
    assert after["b"].startswith("é\n+49 ") and isinstance(after["a"]["card"], int)
    assert after["a"]["q"].startswith('say "') and after["a"]["q"].endswith('"/')
    assert before["b"] != after["b"] and before["a"]["card"] != after["a"]["card"]
    assert new.startswith('{ "b":"\\u00e9\\n+49 ') and new.endswith('\\"\\/"},\t"n":1.50}')


def test_json_within_json_and_arguments_that_are_no_text_are_redacted_too(talk: Talk) -> None:
    inner = json.dumps({"mail": "ana@acme.io", "note": "x\nana@acme.io"})
    nested = json.dumps({"body": inner})
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": {"tel": 4158675309, "m": "ana@acme.io"}},
    }
    done = talk(nested, {"role": "assistant", "content": "", "tool_calls": [call]})
    read = json.loads(json.loads(done.messages[0]["content"])["body"])
    arguments = done.messages[1]["tool_calls"][0]["function"]["arguments"]
    assert read["mail"] == arguments["m"] and read["note"] == f"x\n{read['mail']}"
    assert "acme" not in str(done.messages)
    assert isinstance(arguments["tel"], int) and arguments["tel"] != 4158675309


def test_parts_and_participants_are_texts_and_the_rest_is_left(talk: Talk) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://ana@acme.io/x.png"}}
    said = {"role": "user", "name": "ana@acme.io", "content": [{"type": "text", "text": "ana@acme.io"}, picture]}
    tool = {"role": "tool", "name": "lookup_4158675309", "tool_call_id": "ana@acme.io", "content": "none"}
    user, result = talk(said, tool).messages
    assert user["name"] == user["content"][0]["text"] != "ana@acme.io"
    assert user["content"][1] == picture
    assert result == tool


def test_tools_keep_their_names_and_lose_values_in_their_texts(talk: Talk) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string", "default": "ana@acme.io"}}, "required": ["to"]}
    tools = [{"type": "function", "function": {"name": "mail", "description": "writes", "parameters": schema}}]
    done = talk("I am ana@acme.io", tools=tools)
    assert done.tools is not None
    made = done.messages[0]["content"].removeprefix("I am ")
    assert done.tools == json.loads(json.dumps(tools).replace("ana@acme.io", made))
    assert talk("hello", tools=tools[:0]).tools == []
    assert talk("hello").tools is None


def test_counts_name_kinds_and_no_value(talk: Talk) -> None:
    said = "ana@acme.io and eva@acme.io from 81.2.69.142, key hf_" + "abcdefghijklmnopq" * 2
    done = talk(said, "ana@acme.io")
    assert done.counts == {"email": 3, "ip": 1, "secret:huggingface": 1}
    assert "acme" not in repr(done)


def test_nothing_is_touched_when_it_is_switched_off_or_its_kind_is(talk: Talk, clean: Clean) -> None:
    said = "ana@acme.io at 81.2.69.142"
    assert talk(said, enabled=False).messages[0]["content"] == said
    assert clean(said, kinds=("ip",)).startswith("ana@acme.io at ")
    assert clean(said, kinds=("ip",)) != said


def test_a_conversation_without_anything_personal_is_as_it_was(talk: Talk) -> None:
    said = "Where is my order 1234567890? It was 19.99 on 2026-05-06, version 1.2.3.4."
    done = talk(said, {"role": "assistant", "content": None})
    assert canonical_json(done.messages) == canonical_json(
        [{"role": "user", "content": said}, {"role": "assistant", "content": None}]
    )
    assert not done.counts


@pytest.mark.parametrize("odd", [None, 5, [], [None, 7, {"type": "text"}], {"text": "x"}, ["ana@acme.io"]])
def test_odd_contents_are_no_error(talk: Talk, odd: Any) -> None:
    done = talk({"role": "user", "content": odd}, {"role": "assistant", "content": odd, "tool_calls": [odd, "x"]})
    assert "acme" not in str([message["content"] for message in done.messages])


def test_what_the_tasks_prompt_tells_everybody_stays_but_no_secret_of_it(clean: Clean) -> None:
    from flywheel.datasets.redact import redact

    key = "hf_" + "abcdefghijklmnopq" * 2
    said = [{"role": "user", "content": f"help@acme.io or ana@acme.io? {key}"}]
    done = redact(said, key=b"k", conversation="c", public=f"Write to HELP@acme.io. {key}")
    content = done.messages[0]["content"]
    assert content.startswith("help@acme.io or ") and "ana@" not in content and content.endswith("[SECRET:huggingface]")


def test_a_value_is_recognised_by_the_surrogate_that_it_has_in_the_conversation(talk: Talk) -> None:
    prompt, answer = talk("my number is 4158675309", "calling 4158675309").messages
    assert talk(prompt, "calling 4158675309").messages == [prompt, answer]
    assert talk(prompt, "order 4158675308").messages[1]["content"] == "order 4158675308"
