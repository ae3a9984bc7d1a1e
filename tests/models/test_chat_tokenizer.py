"""Chat messages to ids and back."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.errors import DatasetError, RequestError
from flywheel.models import ChatTokenizer, ModelDir, load_tokenizer

CHAT = [
    {"role": "system", "content": "Route."},
    {"role": "user", "content": "where is it?"},
    {"role": "assistant", "content": "shipping"},
    {"role": "user", "content": "and my money?"},
    {"role": "assistant", "content": "\n refunds é"},
]


@pytest.fixture(scope="module")
def chat(tiny: ModelDir) -> ChatTokenizer:
    return load_tokenizer(tiny)


def learned_text(chat: ChatTokenizer, ids: list[int], learned: list[bool]) -> str:
    return chat.decode([token for token, learn in zip(ids, learned, strict=True) if learn])


def test_ids_of_a_prompt_equal_those_of_transformers(chat: ChatTokenizer, tiny: ModelDir) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(tiny.path, local_files_only=True)
    expected = reference.apply_chat_template(CHAT[:2], add_generation_prompt=True, tokenize=True)["input_ids"]
    assert chat.encode_prompt(CHAT[:2]) == expected


def test_what_is_learned_is_what_generation_emits_after_the_prompt(chat: ChatTokenizer) -> None:
    ids, learned = chat.encode_example(CHAT, [False] * 4 + [True])
    prompt = chat.encode_prompt(CHAT[:4])
    assert ids[: len(prompt)] == prompt
    assert learned == [False] * len(prompt) + [True] * (len(ids) - len(prompt))
    assert ids[-1] in chat.eos_ids
    assert chat.decode(ids[len(prompt) :]) == "\n refunds é"


def test_several_messages_can_be_learned_each_with_its_end_of_turn(chat: ChatTokenizer) -> None:
    ids, learned = chat.encode_example(CHAT, [False, False, True, False, True])
    assert learned_text(chat, ids, learned) == "shipping\n refunds é"
    assert sum(token in chat.eos_ids and learn for token, learn in zip(ids, learned, strict=True)) == 2


def test_messages_after_the_last_learned_one_are_left_out(chat: ChatTokenizer) -> None:
    mask = [False, False, True]
    assert chat.encode_example(CHAT, [*mask, False, False]) == chat.encode_example(CHAT[:3], mask)


def test_an_example_that_teaches_nothing_is_refused(chat: ChatTokenizer) -> None:
    with pytest.raises(DatasetError, match="no message"):
        chat.encode_example(CHAT, [False] * 5)
    with pytest.raises(DatasetError, match="3 entries for 5"):
        chat.encode_example(CHAT, [True] * 3)


def test_text_parts_join_and_developer_means_system(chat: ChatTokenizer) -> None:
    parts = [
        {"role": "developer", "content": "Route."},
        {"role": "user", "content": [{"type": "text", "text": "where is"}, {"type": "text", "text": " it?"}]},
    ]
    assert chat.encode_prompt(parts) == chat.encode_prompt(CHAT[:2])


@pytest.mark.parametrize("content", [{"a": 1}, 3, [{"type": "image_url", "image_url": {"url": "x"}}], ["secret"]])
def test_content_that_is_no_text_is_a_bad_request_which_does_not_quote_it(chat: ChatTokenizer, content: object) -> None:
    with pytest.raises(RequestError) as caught:
        chat.encode_prompt([{"role": "user", "content": content}])
    assert caught.value.status == 400
    assert "secret" not in str(caught.value)


def test_half_a_surrogate_pair_is_replaced(chat: ChatTokenizer) -> None:
    assert chat.encode("a\ud800b") == chat.encode("a?b")


@settings(max_examples=60)
@given(st.text(max_size=30))
def test_streamed_pieces_join_to_the_text_and_never_hold_half_a_character(tiny: ModelDir, text: str) -> None:
    chat = _shared(tiny)
    ids = chat.encode(text)
    decoder = chat.stream_decoder()
    pieces = [decoder.push(token) for token in ids]
    assert "".join(pieces) + decoder.flush() == chat.decode(ids)
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@settings(max_examples=60)
@given(st.lists(st.integers(3, 258), max_size=30))
def test_streams_of_any_bytes_join_to_the_decoded_text(tiny: ModelDir, ids: list[int]) -> None:
    chat = _shared(tiny)
    decoder = chat.stream_decoder()
    assert "".join(decoder.push(token) for token in ids) + decoder.flush() == chat.decode(ids)


def test_threads_may_share_one_tokenizer(chat: ChatTokenizer) -> None:
    expected, faults = chat.encode_prompt(CHAT), []

    def work() -> None:
        faults.extend(1 for _ in range(100) if chat.encode_prompt(CHAT) != expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


_kept: dict[str, ChatTokenizer] = {}


def _shared(model: ModelDir) -> ChatTokenizer:
    return _kept.setdefault(model.name, load_tokenizer(model)) if model.name not in _kept else _kept[model.name]
