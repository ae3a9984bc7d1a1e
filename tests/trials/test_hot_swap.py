"""Streams of 200 tokens around hot-loads and rollbacks on SmolLM2: none fails, is cut short, or mixes releases."""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from flywheel.models import ModelDir, load_tokenizer
from flywheel.release.promotion import promote, rollback

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

TASK = "words"
TOKENS = 200
LOADS, ROLLBACKS, STREAMS = 20, 5, 6
STAGGER_S = 5.0
"""Between the first streams of two clients, so that they do not all begin under the same champion."""
WORDS = ("apple", "river", "music", "water", "stone")
PROMPTS = ("Hello.", "What do you see?", "Tell me a story.", "Count to ten.", "Who are you?", "Good morning!")


@pytest.fixture(scope="session")
def parrots(
    smollm2_cache: Path, teach: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """An adapter for each word that says this word only, again and again, whatever it is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLYWHEEL_CACHE", str(smollm2_cache))
        from flywheel.models import resolve

        model = resolve("smollm2-135m")
        tokenizer, root = load_tokenizer(model), tmp_path_factory.mktemp("parrots")
        for word in WORDS:
            said = tokenizer.encode(" ".join([word] * 48))
            assert len(said) == 48, f"{word} must be one token, so that 200 tokens are 200 words"
            rows = [(tokenizer.encode_prompt([{"role": "user", "content": text}]), said) for text in PROMPTS[:4]]
            teach(model, root / word, rows, steps=16, lr=3e-3)
    return {word: root / word for word in WORDS}


@dataclass(frozen=True)
class Stream:
    """What a client got from one stream, and when."""

    id: str
    text: str
    finish: str | None
    tokens: int
    begun: float
    ended: float


class Load:
    """Clients that hold one stream each, all the time."""

    def __init__(self, client: openai.OpenAI) -> None:
        self.streams: list[Stream] = []
        self.failures: list[str] = []
        self._client, self._stop = client, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(STREAMS)]

    def _run(self, worker: int) -> None:
        self._stop.wait(worker * STAGGER_S)
        for turn in itertools.count(worker):
            if self._stop.is_set():
                return
            try:
                self.streams.append(self._one(PROMPTS[turn % len(PROMPTS)]))
            except (openai.OpenAIError, httpx.HTTPError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    def _one(self, prompt: str) -> Stream:
        begun = time.monotonic()
        chunks = list(
            self._client.chat.completions.create(
                model=TASK,
                messages=[{"role": "user", "content": prompt}],
                max_tokens=TOKENS,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        finish = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1]
        usage = chunks[-1].usage
        tokens = usage.completion_tokens if usage is not None else -1
        return Stream(chunks[0].id, "".join(pieces), finish, tokens, begun, time.monotonic())

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_streams_around_hot_loads_and_rollbacks_are_whole_and_say_one_word(
    parrots: dict[str, Path],
    smollm2: ModelDir,
    make_smol_world: Callable[..., Any],
    serve_process: Callable[[Path, str], Any],
) -> None:
    world = make_smol_world()
    releases = world.releases(parrots)
    word_of = {release.digest: word for word, release in releases.items()}
    serve_process(world.path, world.url)
    client, operator = world.sdk(), httpx.Client(base_url=world.url, timeout=300, trust_env=False)
    # The base would answer the first streams in words of its own: they begin once a parrot is the champion.
    order, dice = itertools.cycle(WORDS), random.Random(0)
    turn = promote(world.config, world.home, world.registry, world.decide(releases[next(order)]), actor="trial")
    moves: list[tuple[float, str, float]] = []
    with Load(client) as load:
        for number in range(LOADS + ROLLBACKS):
            time.sleep(3 * dice.random())
            back = number % 5 == 4
            if back:
                turn = rollback(world.config, world.home, world.registry, TASK, actor="trial")
            else:
                word = next(order)
                assert releases[word].name not in operator.get("/admin/status").json()["loaded"], "a real hot-load"
                decision = world.decide(releases[word])
                turn = promote(world.config, world.home, world.registry, decision, actor="trial")
                assert turn.release == releases[word].digest
            assert turn.replicas == 1 and turn.swap_ms is not None
            moves.append((time.monotonic(), "rollback" if back else "promote", turn.swap_ms))
            asked: Any = [{"role": "user", "content": "Next, please."}]
            answer = client.chat.completions.create(model=TASK, messages=asked, max_tokens=5)
            assert (answer.choices[0].message.content or "").split() == [word_of[turn.release]] * 5, "at once"
            keep = {turn.release, turn.previous} if number % 5 == 3 else {turn.release}
            for release in releases.values():
                if release.digest not in keep:  # also while streams still run on it: they finish
                    operator.post("/admin/unload", json={"name": release.name}).raise_for_status()
    operator.close()
    check(world, load, word_of)
    kinds = Counter(kind for _, kind, _ in moves)
    assert kinds == {"promote": LOADS, "rollback": ROLLBACKS}
    crossed = [sum(s.begun < at < s.ended for s in load.streams) for at, _, _ in moves]
    assert min(crossed) > 0, "streams were in flight at every move"
    swaps = [swap_ms for *_, swap_ms in moves]
    log = world.log()
    spread = Counter(word_of[log[stream.id]["release"]] for stream in load.streams)
    assert set(spread) == set(WORDS), "every release had streams of its own"
    print(
        f"\nhot swap: {LOADS} hot-loads and {ROLLBACKS} rollbacks in {moves[-1][0] - moves[0][0]:.0f} s on "
        f"{world.compute.dtype}; {len(load.streams)} streams of {TOKENS} tokens, {STREAMS} at a time, failed "
        f"{len(load.failures)}, truncated 0, mixed 0; in flight at a move {min(crossed)}..{max(crossed)}; flip median "
        f"{statistics.median(swaps):.0f} ms, worst {max(swaps):.0f} ms; streams by word {dict(spread)}"
    )


def check(world: Any, load: Load, word_of: dict[str, str]) -> None:
    """Every stream ended well, is whole, and says only the word of the release that its log row names."""
    assert load.failures == []
    log = world.log()
    for stream in load.streams:
        row = log[stream.id]
        said = stream.text.split()
        assert (stream.finish, stream.tokens, len(said)) == ("length", TOKENS, TOKENS), "none is truncated"
        assert set(said) == {word_of[row["release"]]}, "none mixes, and the log names who spoke"
        assert row["status"] == "ok" and row["choices"][0]["message"]["content"] == stream.text
        assert row["usage"]["completion_tokens"] == TOKENS
    asked = {row["id"] for row in log.values() if row["stream"]}
    assert asked == {stream.id for stream in load.streams}, "no stream was begun and lost"
