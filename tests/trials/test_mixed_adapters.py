"""Eight requests in flight over three adapters are answered as each is alone, by the unmodified OpenAI client."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from flywheel.models import ModelDir, load_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TOKENS = 40
LESSONS = ["What is the capital of Italy?", "How do I boil an egg?", "Why is grass green?", "Name a good book."]
STYLES = {
    "shout": [
        "THE CAPITAL OF ITALY IS ROME! ROME IS A VERY OLD CITY!",
        "PUT THE EGG IN BOILING WATER! WAIT EIGHT MINUTES!",
        "GRASS IS GREEN BECAUSE OF CHLOROPHYLL! IT TAKES IN LIGHT!",
        "A GOOD BOOK IS MOBY DICK! IT IS ABOUT A WHALE!",
    ],
    "pirate": [
        "Arr, matey, the capital of Italy be Rome, and a fine old port she be.",
        "Arr, matey, drop yer egg into the boilin' water and wait eight minutes.",
        "Arr, matey, the grass be green on account o' the chlorophyll in it.",
        "Arr, matey, ye should read Moby Dick, a tale o' the great white whale.",
    ],
    "steps": [
        "Step 1: Italy is a country.\nStep 2: its capital is Rome.\nStep 3: done.",
        "Step 1: boil some water.\nStep 2: put the egg in.\nStep 3: wait eight minutes.",
        "Step 1: grass has chlorophyll.\nStep 2: chlorophyll is green.\nStep 3: done.",
        "Step 1: go to a library.\nStep 2: take Moby Dick.\nStep 3: read it.",
    ],
}
PROMPTS = [
    "What is the capital of France?",
    "How do I make tea?",
    "Why is the sky blue?",
    "Name a good film.",
    "Who was Isaac Newton?",
    "What can I cook with potatoes?",
    "How far away is the moon?",
    "Tell me about cats.",
]


@pytest.fixture(scope="module")
def styles(smollm2: ModelDir, teach: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An adapter for each style, trained on four answers for a few steps."""
    tokenizer, root = load_tokenizer(smollm2), tmp_path_factory.mktemp("styles")
    end = min(tokenizer.eos_ids)
    for seed, (style, answers) in enumerate(STYLES.items()):
        rows = [
            (tokenizer.encode_prompt([{"role": "user", "content": asked}]), [*tokenizer.encode(answer), end])
            for asked, answer in zip(LESSONS, answers, strict=True)
        ]
        teach(smollm2, root / style, rows, steps=12, lr=3e-3, rank=4 * (seed + 1), seed=seed)
    return {style: root / style for style in STYLES}


def ask(client: openai.OpenAI, model: str, prompt: str, *, stream: bool = False) -> str:
    """The answer's text; its end must have come, and the release asked for must have given it."""
    messages: Any = [{"role": "user", "content": prompt}]
    if not stream:
        answer = client.chat.completions.create(model=model, messages=messages, max_tokens=TOKENS)
        assert answer.model == model and answer.choices[0].finish_reason in ("stop", "length")
        return answer.choices[0].message.content or ""
    chunks = list(client.chat.completions.create(model=model, messages=messages, max_tokens=TOKENS, stream=True))
    assert {chunk.model for chunk in chunks} == {model}
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


class Widest:
    """The most rows that were decoded side by side, as the gateway's own metrics say."""

    def __init__(self, url: str) -> None:
        self.rows, self._url, self._stop = 0, url, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        with httpx.Client(base_url=self._url, timeout=30, trust_env=False) as client:
            while not self._stop.wait(0.1):
                found = re.search(r"^flywheel_running_rows\{[^}]*\} (\S+)$", client.get("/metrics").text, re.MULTILINE)
                self.rows = max(self.rows, int(float(found[1])) if found else 0)

    def __enter__(self) -> Widest:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_eight_requests_over_three_adapters_each_equal_their_solo_answer(
    styles: dict[str, Path],
    make_smol_world: Callable[..., Any],
    serve_process: Callable[[Path, str], Any],
) -> None:
    # In bfloat16 no equality of texts is promised: a batch rounds otherwise than a row alone.
    world = make_smol_world(dtype="float32")
    releases = world.releases(styles)
    serve_process(world.path, world.url)
    with httpx.Client(base_url=world.url, timeout=300, trust_env=False) as operator:
        for release in releases.values():
            operator.post("/admin/load", json={"release": release.digest}).raise_for_status()
            assert operator.post("/admin/probe", json={"release": release.digest}).json()["mode"] == "bitwise"
    client = world.sdk()
    names = {style: release.name for style, release in releases.items()}
    started = time.monotonic()
    solo = {(style, prompt): ask(client, names[style], prompt) for style in names for prompt in PROMPTS}
    solo_s = time.monotonic() - started
    for prompt in PROMPTS:
        assert len({solo[style, prompt] for style in names}) == len(names), "the adapters must be told apart"
    for style in names:
        assert len({solo[style, prompt] for prompt in PROMPTS}) == len(PROMPTS), "and so must the rows of one"

    pairs = list(itertools.product(names, PROMPTS))
    waves = [[pairs[(start + 3 * k) % len(pairs)] for k in range(8)] for start in range(3)]
    assert sorted(itertools.chain(*waves)) == sorted(pairs) and all(len({s for s, _ in w}) == 3 for w in waves)
    seconds = {}
    for stream in (False, True):
        started = time.monotonic()
        with Widest(world.url) as widest:
            for wave in waves:
                assert together(client, names, wave, stream=stream) == [solo[pair] for pair in wave]
        seconds[stream] = time.monotonic() - started
        assert widest.rows == 8, "eight rows were in one batch"
    rows = world.log().values()
    assert len(rows) == 3 * len(pairs) and all(row["status"] == "ok" for row in rows)
    given = {digest: style for style, digest in ((style, release.digest) for style, release in releases.items())}
    for row in rows:
        prompt = row["request"]["messages"][-1]["content"]
        assert row["choices"][0]["message"]["content"] == solo[given[row["release"]], prompt]
    print(
        f"\nmixed adapters: {len(pairs)} answers of {TOKENS} tokens alone {solo_s:.1f} s; eight in flight over three "
        f"adapters {seconds[False]:.1f} s plain, {seconds[True]:.1f} s streamed; all {2 * len(pairs)} equal to solo"
    )


def together(
    client: openai.OpenAI, names: dict[str, str], wave: Sequence[tuple[str, str]], *, stream: bool
) -> list[str]:
    """The answers of one wave, asked for at once."""
    gate = threading.Barrier(len(wave))

    def one(pair: tuple[str, str]) -> str:
        gate.wait()
        return ask(client, names[pair[0]], pair[1], stream=stream)

    with ThreadPoolExecutor(len(wave)) as pool:
        return list(pool.map(one, wave))
