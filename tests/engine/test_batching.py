"""The batch: rows with different adapters and lengths in one forward, each equal to what it gives alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from flywheel.engine.engine import Engine
from flywheel.engine.sampling import SamplingParams
from flywheel.models import Compute, ModelDir, load_model

Ask = Callable[..., Any]
FP32_TOLERANCE = 1e-4
ROWS: list[str | None] = ["red", "green", "blue", None, "green", "red", "blue", "red"]
GREEDY = SamplingParams(max_tokens=24)


@pytest.fixture
def served(engine: Engine, adapter_folders: dict[str, Path]) -> Engine:
    for name, folder in adapter_folders.items():
        engine.load_adapter(name, folder)
    return engine


def test_eight_in_flight_over_three_adapters_equal_their_solo_answers(
    served: Engine, prompts: list[list[int]], ask: Ask
) -> None:
    solo = [served.generate(p, GREEDY, adapter=name) for p, name in zip(prompts, ROWS, strict=True)]
    steps = served.stats()["steps"]
    together = [ask(served, p, name, max_tokens=24) for p, name in zip(prompts, ROWS, strict=True)]
    for one, answer in zip(solo, together, strict=True):
        assert answer.wait().ids == one.ids
        assert answer.logprobs == pytest.approx(one.logprobs, abs=FP32_TOLERANCE)
        assert answer.finished.text == one.text
    assert served.stats()["steps"] - steps < sum(len(one.ids) for one in solo) / 2, "rows must share forwards"


def test_three_adapters_and_the_base_answer_differently_on_every_prompt(
    served: Engine, prompts: list[list[int]]
) -> None:
    for prompt in prompts:
        answers = {tuple(served.generate(prompt, GREEDY, adapter=name).ids) for name in ("red", "green", "blue", None)}
        assert len(answers) == 4


def test_rows_that_join_and_leave_at_different_times_disturb_nobody(
    served: Engine, prompts: list[list[int]], ask: Ask
) -> None:
    lengths = [3, 40, 7, 25, 1, 33, 12, 18]
    jobs = [(p, name, n) for _ in range(3) for p, name, n in zip(prompts, ROWS, lengths, strict=True)]
    answers = [ask(served, p, name, max_tokens=n) for p, name, n in jobs]
    for (prompt, name, n), answer in zip(jobs, answers, strict=True):
        alone = served.generate(prompt, SamplingParams(max_tokens=n), adapter=name)
        assert answer.wait().ids == alone.ids
        assert answer.logprobs == pytest.approx(alone.logprobs, abs=FP32_TOLERANCE)


@pytest.mark.parametrize("name", ["red", "green", "blue"])
def test_plain_peft_gives_the_same_logprobs(
    served: Engine,
    tiny: ModelDir,
    fp32: Compute,
    prompts: list[list[int]],
    adapter_folders: dict[str, Path],
    ask: Ask,
    name: str,
) -> None:
    from peft import PeftModel

    oracle = PeftModel.from_pretrained(load_model(tiny, fp32), adapter_folders[name]).eval()
    others = [ask(served, p, other, max_tokens=60) for p, other in zip(prompts[:7], ROWS[:7], strict=True)]
    answer = ask(served, prompts[4], name, max_tokens=20).wait()
    with torch.no_grad():
        logits = oracle(torch.tensor([prompts[4] + answer.ids[:-1]])).logits[0, len(prompts[4]) - 1 :]
    expected = torch.log_softmax(logits, -1)
    assert expected.argmax(-1).tolist() == answer.ids
    assert answer.logprobs == pytest.approx(expected.max(-1).values.tolist(), abs=FP32_TOLERANCE)
    forced = served.teacher_forced(prompts[4], answer.ids, adapter=name)
    assert torch.allclose(forced, expected, atol=FP32_TOLERANCE, rtol=0)
    for other in others:
        other.wait()


def test_greedy_answers_of_the_base_equal_those_of_transformers_generate(
    engine: Engine, tiny: ModelDir, fp32: Compute, prompts: list[list[int]]
) -> None:
    model: Any = load_model(tiny, fp32)
    for prompt in prompts:
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0][len(prompt) :]
        assert engine.generate(prompt, GREEDY).ids == expected.tolist()


def test_a_teacher_forced_pass_is_bitwise_the_same_whatever_else_is_loaded_and_running(
    engine: Engine, adapter_folders: dict[str, Path], prompts: list[list[int]], ask: Ask
) -> None:
    engine.load_adapter("red", adapter_folders["red"])
    alone = engine.teacher_forced(prompts[1], prompts[2], adapter="red")
    assert alone.dtype == torch.float32 and alone.shape[0] == len(prompts[2])
    for name in ("green", "blue"):
        engine.load_adapter(name, adapter_folders[name])
    running = [ask(engine, p, name, max_tokens=200) for p, name in zip(prompts, ROWS, strict=True)]
    running[0].begun.wait(10)
    crowded = engine.teacher_forced(prompts[1], prompts[2], adapter="red")
    for answer in running:
        answer.wait()
    assert torch.equal(alone, crowded)


def test_a_prompt_read_in_pieces_gives_what_it_gives_at_once(
    engine: Engine, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    prompt = tokenizer.encode("".join(chr(97 + n % 26) for n in range(400)))
    whole = engine.teacher_forced(prompt, [5, 6], adapter=None)
    for size in (7, 128, 512):
        monkeypatch.setattr(importlib.import_module("flywheel.engine.engine"), "READ_TOKENS_PER_STEP", size)
        got = engine.generate(prompt, SamplingParams(max_tokens=1))
        assert got.ids == [int(whole[0].argmax())]
        assert got.logprobs == pytest.approx([float(whole[0].max())], abs=FP32_TOLERANCE)


def test_a_long_prompt_does_not_stop_running_answers(engine: Engine, tokenizer: Any, ask: Ask) -> None:
    """Between the pieces of a long prompt the running row gets its tokens."""
    order: list[str] = []
    done = threading.Event()
    short, long = tokenizer.encode("hello"), tokenizer.encode("x" * 900)
    started = threading.Event()

    def of_short(event: Any) -> None:
        order.append("short")
        if len(order) == 2:
            started.set()

    engine.submit(short, SamplingParams(max_tokens=400), adapter=None, on_event=of_short)
    assert started.wait(10)
    submitted_at = len(order)

    def of_long(event: Any) -> None:
        order.append("long")
        done.set()

    engine.submit(long, SamplingParams(max_tokens=1), adapter=None, on_event=of_long)
    assert done.wait(30)
    first = order.index("long")
    assert first - submitted_at >= 3, "900 tokens are read in four pieces, with a decode step after each"


def test_bf16_stays_close_to_its_solo_answers(
    tiny: ModelDir, adapter_folders: dict[str, Path], prompts: list[list[int]], ask: Ask
) -> None:
    """Batching may change bf16 logits; what an answer's tokens get in the crowd stays near what they get alone."""
    with Engine(tiny, Compute("bfloat16", 1)) as engine:
        for name, folder in adapter_folders.items():
            engine.load_adapter(name, folder)
        answers = [ask(engine, p, name, max_tokens=24) for p, name in zip(prompts, ROWS, strict=True)]
        gaps: list[float] = []
        for prompt, name, answer in zip(prompts, ROWS, answers, strict=True):
            alone = engine.teacher_forced(prompt, answer.wait().ids, adapter=name)
            picked = alone.gather(1, torch.tensor(answer.ids).unsqueeze(1)).squeeze(1).tolist()
            gaps.extend(abs(a - b) for a, b in zip(picked, answer.logprobs, strict=True))
    assert sum(gaps) / len(gaps) < 0.05
