"""Scorers: functions from an answer and its label to 0 or 1, found by name.

A scorer is registered by a decorator on a factory, so that one with options is a closure over them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from flywheel.errors import EvaluationError

Scorer = Callable[[str, str], int]

METRICS = Path(__file__).parent / "metrics"
"""Metric modules for ``evaluate.load(path)``: by name it would need the hub."""

_REGISTRY: dict[str, Callable[[], Scorer]] = {}


def scorer(name: str) -> Callable[[Callable[[], Scorer]], Callable[[], Scorer]]:
    """Register a factory of a scorer under ``name``, as ``flywheel.yaml`` spells it in ``score``."""

    def register(factory: Callable[[], Scorer]) -> Callable[[], Scorer]:
        _REGISTRY[name] = factory
        return factory

    return register


def get_scorer(name: str) -> Scorer:
    """The scorer of that name. Raises EvaluationError listing the known ones."""
    if name not in _REGISTRY:
        raise EvaluationError(f"unknown scorer {name!r}; known are: {', '.join(sorted(_REGISTRY))}")
    return _REGISTRY[name]()


def normalise_answer(text: str) -> str:
    """What exact match compares: Unicode NFKC, no case, runs of blanks as one, outer blanks and final periods gone."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(". ")


@scorer("exact")
def exact() -> Scorer:
    """1 when answer and label are equal after ``normalise_answer``, else 0. An empty answer is never right."""

    def score(answer: str, label: str) -> int:
        said = normalise_answer(answer)
        return int(bool(said) and said == normalise_answer(label))

    return score


def metrics(answers: list[str], labels: list[str]) -> dict[str, float]:
    """Accuracy and macro F1 of normalised answers, through the `evaluate` library's interface; empty without items."""
    if not answers:
        return {}
    said, right = [normalise_answer(a) for a in answers], [normalise_answer(label) for label in labels]
    found: dict[str, float] = {}
    for name in ("accuracy", "macro_f1"):
        found |= {key: float(value) for key, value in _metric(name).compute(predictions=said, references=right).items()}
    return found


@cache
def _metric(name: str) -> Any:
    import evaluate

    return evaluate.load(str(METRICS / name), keep_in_memory=True)
