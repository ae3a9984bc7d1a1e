"""Answers of one release on a suite, in waves of fixed width, each durable before the next begins.

Which rows share a forward changes the low bits of their logits. So the waves are cut by item order alone, and a run
that was killed goes on at the border of the last whole wave: it decodes the same batches as an undisturbed run.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flywheel.datasets.prompts import with_prompt
from flywheel.errors import EvaluationError, FlywheelError, RequestError, without_message
from flywheel.evaluation.items import Suite, SuiteItem
from flywheel.evaluation.spec import Contender
from flywheel.store.digests import short
from flywheel.store.files import read_json, write_json

if TYPE_CHECKING:
    from flywheel.engine.engine import Engine
    from flywheel.engine.requests import Event
    from flywheel.models import ChatTokenizer

TOO_LONG = "context_length_exceeded"

Answer = str | None
"""None when the prompt left no room for an answer in the context; scored as wrong."""


def answer_suite(
    engine: Engine,
    tokenizer: ChatTokenizer,
    contender: Contender,
    suite: Suite,
    *,
    adapter: str | None,
    wave: int,
    folder: Path,
    role: str,
    progress: Callable[[int], None],
) -> list[Answer]:
    """The contender's answer to each item, in item order.

    Args:
        adapter: the contender's name in the engine, or None for the bare base model.
        folder: where finished waves of this very evaluation lie.
        role: ``champion`` or ``candidate``; part of a wave's file name.
        progress: called with the number of items after each wave.

    Raises EvaluationError when the engine fails on an item.
    """
    answers: list[Answer] = []
    for start in range(0, len(suite.items), wave):
        items = suite.items[start : start + wave]
        path = folder / f"wave-{role}-{suite.kind}-{start:06d}.json"
        found = _finished(path, suite.digest, len(items))
        if found is None:
            found = _answer(engine, tokenizer, contender, items, adapter)
            write_json(path, {"suite": suite.digest, "release": contender.release, "answers": found})
        answers.extend(found)
        progress(len(items))
    return answers


def clear_waves(folder: Path) -> None:
    """Remove the waves of a finished evaluation: they hold answers, which are log text."""
    for path in folder.glob("wave-*.json"):
        path.unlink(missing_ok=True)


def _finished(path: Path, suite: str, items: int) -> list[Answer] | None:
    try:
        wave = read_json(path)
        # An erasure may have put another suite in the place of the one that the wave was cut from.
        answers = wave["answers"] if wave["suite"] == suite else None
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        return None  # damaged by hand or disk: decode it again
    return answers if isinstance(answers, list) and len(answers) == items else None


def _answer(
    engine: Engine, tokenizer: ChatTokenizer, contender: Contender, items: Sequence[SuiteItem], adapter: str | None
) -> list[Answer]:
    from flywheel.engine.requests import Failed, Finished
    from flywheel.engine.sampling import SamplingParams

    params = SamplingParams(max_tokens=contender.max_tokens, temperature=0.0)
    prompts = [
        tokenizer.encode_prompt(with_prompt(item.messages, contender.system_prompt), item.tools) for item in items
    ]
    events: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()
    answers: list[Answer] = [None] * len(items)
    running: set[int] = set()
    with engine.together():  # one by one, the first rows would decode before the last ones have arrived
        for index, prompt in enumerate(prompts):
            try:
                engine.submit(prompt, params, adapter=adapter, on_event=partial(_tell, events, index))
            except RequestError as error:
                if error.code != TOO_LONG:
                    raise
            else:
                running.add(index)
    while running:
        index, event = events.get()
        if isinstance(event, Finished):
            answers[index] = event.text
            running.discard(index)
        elif isinstance(event, Failed):
            where = f"release {short(contender.release)}, item {items[index].item_id}"
            foreseen = isinstance(event.error, FlywheelError)
            why = str(event.error) if foreseen else without_message(event.error)
            raise EvaluationError(f"{where}: the engine failed: {why}")
    return answers


def _tell(events: queue.SimpleQueue[tuple[int, Event]], index: int, event: Event) -> None:
    events.put((index, event))
