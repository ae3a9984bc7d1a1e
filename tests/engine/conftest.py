"""Fixtures of the engine's tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flywheel.engine.engine import Engine
from flywheel.engine.requests import Event, Failed, Finished, Handle, Token
from flywheel.engine.sampling import SamplingParams
from flywheel.models import ChatTokenizer, Compute, ModelDir, load_tokenizer

ADAPTERS = {"red": (1, 4), "green": (2, 8), "blue": (3, 2)}
"""Seed and rank of the three adapters that most tests serve."""


@pytest.fixture(scope="session")
def tokenizer(tiny: ModelDir) -> ChatTokenizer:
    return load_tokenizer(tiny)


@pytest.fixture(scope="session")
def adapter_folders(tmp_path_factory: pytest.TempPathFactory, random_adapter: Callable[..., Path]) -> dict[str, Path]:
    """Three adapters of different ranks by name; ``blue`` changes only some of the layers."""
    root = tmp_path_factory.mktemp("adapters")
    only = {"blue": {"modules": ("q_proj", "down_proj")}}
    return {
        name: random_adapter(root / name, seed=seed, rank=rank, **only.get(name, {}))
        for name, (seed, rank) in ADAPTERS.items()
    }


class Answer:
    """Collects the events of one request; ``wait`` returns when the last one has come."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.pieces: list[str] = []
        self.end: Finished | Failed | None = None
        self.handle: Handle | None = None
        self._done = threading.Event()
        self.begun = threading.Event()

    def __call__(self, event: Event) -> None:
        assert self.end is None, "no event may follow the last one"
        if isinstance(event, Token):
            self.ids.append(event.token_id)
            self.logprobs.append(event.logprob)
            self.pieces.append(event.text)
            self.begun.set()
        else:
            self.end = event
            self._done.set()
            self.begun.set()

    def wait(self, seconds: float = 30) -> Answer:
        assert self._done.wait(seconds), "the request hangs"
        return self

    @property
    def finished(self) -> Finished:
        assert isinstance(self.end, Finished), self.end
        return self.end

    @property
    def error(self) -> Exception:
        assert isinstance(self.end, Failed), self.end
        return self.end.error


@pytest.fixture
def ask() -> Callable[..., Answer]:
    """``ask(engine, prompt_ids, adapter=None, priority=0, **sampling)`` submits and returns the Answer to come."""

    def submit(engine: Engine, prompt: list[int], adapter: str | None = None, **options: Any) -> Answer:
        answer, priority = Answer(), options.pop("priority", 0)
        params = SamplingParams(**options)
        answer.handle = engine.submit(prompt, params, adapter=adapter, on_event=answer, priority=priority)
        return answer

    return submit


@pytest.fixture
def engine(tiny: ModelDir, fp32: Compute) -> Iterator[Engine]:
    """A running engine on the tiny model without adapters."""
    with Engine(tiny, fp32, max_context=1024) as running:
        yield running


@pytest.fixture
def prompts(tokenizer: ChatTokenizer) -> list[list[int]]:
    """Eight prompts of different lengths."""
    texts = ["hi", "where is my parcel?", "refund", "a" * 90, "my card was charged twice, please", "?", "ok ok", "bye"]
    return [tokenizer.encode_prompt([{"role": "user", "content": text}]) for text in texts]


@pytest.fixture(scope="session")
def shared_tokenizer(tokenizer: ChatTokenizer) -> ChatTokenizer:
    """The tokenizer for property tests, which want fixtures that live longer than one example."""
    return tokenizer
