"""Short prompts that wait together are read in one forward, and nobody can tell from the answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flywheel.engine.engine import READ_TOKENS_PER_STEP, Engine
from flywheel.engine.sampling import SamplingParams

Ask = Callable[..., Any]
ROWS: list[str | None] = ["red", "green", "blue", None, "green", "red", "blue", "red"]
PROMPTS = [list(range(5, 5 + length)) for length in (9, 30, 1, 17, 30, 4, 22, 9)]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> list[list[int]]:
    """The lengths of the prompts in each forward that read several."""
    found: list[list[int]] = []
    read = engine._forwards.read_together

    def noted(prompts: list[list[int]], *rest: Any) -> Any:
        found.append([len(prompt) for prompt in prompts])
        return read(prompts, *rest)

    monkeypatch.setattr(engine._forwards, "read_together", noted)
    return found


@pytest.fixture
def served(engine: Engine, adapter_folders: dict[str, Path]) -> Engine:
    for name, folder in adapter_folders.items():
        engine.load_adapter(name, folder)
    return engine


def asked(engine: Engine, ask: Ask, lengths: list[int]) -> list[Any]:
    with engine.together():
        return [ask(engine, p, name, max_tokens=n) for p, name, n in zip(PROMPTS, ROWS, lengths, strict=True)]


@pytest.mark.parametrize("lengths", [[12] * 8, [1, 12, 1, 3, 12, 1, 1, 5]])
def test_prompts_read_together_give_what_each_gives_alone(
    served: Engine, ask: Ask, groups: list[list[int]], lengths: list[int]
) -> None:
    answers = asked(served, ask, lengths)
    for prompt, name, count, answer in zip(PROMPTS, ROWS, lengths, answers, strict=True):
        answer.wait()
        alone = served.generate(prompt, SamplingParams(max_tokens=count), adapter=name)
        assert answer.ids == alone.ids
        assert answer.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    assert [length for group in groups for length in group] == [len(prompt) for prompt in PROMPTS]
    assert all(len(group) * max(group) <= READ_TOKENS_PER_STEP for group in groups)


def test_a_prompt_alone_and_a_long_one_are_read_by_themselves(
    served: Engine, ask: Ask, groups: list[list[int]]
) -> None:
    long = [7] * (READ_TOKENS_PER_STEP + 40)
    with served.together():
        answers = [ask(served, prompt, None, max_tokens=3) for prompt in (long, [5, 6])]
    for answer in answers:
        assert answer.wait().ids
    assert groups == []


def test_a_fault_while_reading_together_fails_nobody_who_can_be_read_alone(
    served: Engine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no memory for so many")

    monkeypatch.setattr(served._forwards, "read_together", broken)
    for prompt, name, answer in zip(PROMPTS, ROWS, asked(served, ask, [4] * 8), strict=True):
        assert answer.wait().ids == served.generate(prompt, SamplingParams(max_tokens=4), adapter=name).ids


def test_a_row_whose_first_token_cannot_be_chosen_fails_alone(
    served: Engine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = served._forwards.read_together

    def spoilt(*arguments: Any) -> Any:
        logits = read(*arguments)
        logits[1] = float("nan")
        return logits

    monkeypatch.setattr(served._forwards, "read_together", spoilt)
    answers = [answer.wait() for answer in asked(served, ask, [4] * 8)]
    monkeypatch.undo()
    failed = [place for place, answer in enumerate(answers) if not answer.ids]
    assert failed and failed[0] == 1 and len(failed) < 4
    for place in set(range(8)) - set(failed):
        alone = served.generate(PROMPTS[place], SamplingParams(max_tokens=4), adapter=ROWS[place])
        assert answers[place].ids == alone.ids
