"""Choosing tokens, and the text that grows from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.engine.engine import Engine
from flywheel.engine.sampling import RowSampler, SamplingParams, choose_tokens
from flywheel.engine.text import AnswerText
from flywheel.errors import RequestError
from flywheel.models import ChatTokenizer

Ask = Callable[..., Any]
LOGITS = torch.tensor([[1.0, 3.0, 2.0, -1.0]])


def test_temperature_zero_takes_the_likeliest_token_with_its_logprob() -> None:
    (token,), (logprob,) = choose_tokens(LOGITS, [RowSampler(SamplingParams())])
    values = LOGITS[0].numpy()
    assert token == 1
    assert logprob == pytest.approx(values[1] - np.log(np.exp(values).sum()), abs=1e-6)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (2.0, 1.0), (1.0, 0.7), (1.5, 0.9)])
def test_draws_follow_the_tempered_and_truncated_distribution(temperature: float, top_p: float) -> None:
    values = LOGITS[0].numpy() / temperature
    expected = np.exp(values) / np.exp(values).sum()
    order = np.argsort(-expected)
    kept = order[: int(np.searchsorted(expected[order].cumsum(), top_p)) + 1]
    truncated = np.zeros(4)
    truncated[kept] = expected[kept] / expected[kept].sum()
    sampler = RowSampler(SamplingParams(temperature=temperature, top_p=top_p, seed=3))
    counts = Counter(sampler.draw(LOGITS[0]) for _ in range(4000))
    drawn = np.array([counts[token] / 4000 for token in range(4)])
    assert np.abs(drawn - truncated).max() < 0.03
    assert all(counts[token] == 0 for token in range(4) if truncated[token] == 0)


def test_logits_that_are_not_finite_show_as_nan_in_their_row_only() -> None:
    logits = torch.stack([LOGITS[0], torch.full((4,), float("nan"))])
    samplers = [RowSampler(SamplingParams(temperature=1.0, seed=1)) for _ in range(2)]
    _, logprobs = choose_tokens(logits, samplers)
    assert math.isfinite(logprobs[0]) and math.isnan(logprobs[1])


def test_a_seed_gives_the_same_answer_alone_and_in_a_crowd(engine: Engine, prompts: list[list[int]], ask: Ask) -> None:
    params = {"max_tokens": 30, "temperature": 1.0, "top_p": 0.95, "seed": 11}
    alone = engine.generate(prompts[0], SamplingParams(**params))
    crowd = [ask(engine, prompt, max_tokens=40, temperature=1.0, seed=n) for n, prompt in enumerate(prompts[1:])]
    assert ask(engine, prompts[0], **params).wait().ids == alone.ids
    for answer in crowd:
        answer.wait()
    other = engine.generate(prompts[0], SamplingParams(**{**params, "seed": 12}))
    assert other.ids != alone.ids


def test_without_a_seed_answers_differ(engine: Engine, prompts: list[list[int]]) -> None:
    params = SamplingParams(max_tokens=20, temperature=1.0)
    assert len({tuple(engine.generate(prompts[0], params).ids) for _ in range(4)}) > 1


@pytest.mark.parametrize("wrong", [{"max_tokens": 0}, {"temperature": -1}, {"temperature": math.nan}, {"top_p": 0}])
def test_settings_that_cannot_be_are_a_bad_request(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        SamplingParams(**wrong)


def test_an_answer_stops_at_its_stop_string_which_is_never_emitted(
    engine: Engine, prompts: list[list[int]], ask: Ask
) -> None:
    free = engine.generate(prompts[1], SamplingParams(max_tokens=40))
    place = next(i for i in range(5, 30) if free.text[i : i + 2].isascii() and free.text[i : i + 2].strip())
    stop = free.text[place : place + 2]
    answer = ask(engine, prompts[1], max_tokens=40, stop=(stop, "")).wait()
    assert answer.finished.finish_reason == "stop"
    assert answer.finished.text == free.text[: free.text.index(stop)]
    assert "".join(answer.pieces) == answer.finished.text
    assert len(answer.ids) < len(free.ids)


def test_the_end_of_turn_token_ends_the_answer_and_is_not_text(engine: Engine, tokenizer: ChatTokenizer) -> None:
    (end,) = tokenizer.eos_ids
    model: Any = engine._forwards.adapters.model
    model.lm_head.register_forward_hook(lambda _m, _i, out: out.index_fill(-1, torch.tensor([end]), 1e4))
    done = engine.generate([7, 8], SamplingParams(max_tokens=5))
    assert (done.ids, done.text, done.finish_reason) == ([end], "", "stop")


@settings(max_examples=150)
@given(
    text=st.text(alphabet="ab€", max_size=25),
    stop=st.lists(st.text(alphabet="ab€", min_size=1, max_size=4), max_size=3),
)
def test_streamed_text_is_the_answer_before_the_first_stop_and_never_begins_one(
    shared_tokenizer: ChatTokenizer, text: str, stop: list[str]
) -> None:
    answer = AnswerText(shared_tokenizer.stream_decoder(), tuple(stop))
    emitted = ""
    expected = text
    for n in range(len(text) + 1):
        cuts = [text[:n].find(s) for s in stop if s in text[:n]]
        if cuts:
            expected = text[: min(cuts)]
            break
    for token in shared_tokenizer.encode(text):
        emitted += answer.push(token)
        assert expected.startswith(emitted), "text was emitted that a stop string takes back"
        if answer.stopped:
            break
    if not answer.stopped:
        emitted += answer.finish()
    assert emitted == answer.text == expected
