from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

from flywheel.datasets.redact import Redacted
from flywheel.datasets.redact.invented import NAMES
from flywheel.datasets.redact.people import MODEL
from flywheel.errors import ConfigError

INSTALLED = all(importlib.util.find_spec(name) for name in ("presidio_analyzer", MODEL))
needs_presidio = pytest.mark.skipif(not INSTALLED, reason="the extra presidio is not installed")

Talk = Callable[..., Redacted]


@needs_presidio
def test_a_person_is_somebody_else_in_the_whole_conversation(talk: Talk) -> None:
    done = talk(
        "My name is Maria Gonzalez and I live in Boston.",
        '{"customer": "Maria Gonzalez"}',
        "Thank you, Maria! Mrs GONZALEZ will hear from us.",
        names=True,
    )
    asked, called, answer = (message["content"] for message in done.messages)
    first, last = asked.removeprefix("My name is ").removesuffix(" and I live in Boston.").split()
    assert {first, last} <= set(NAMES)
    assert called == f'{{"customer": "{first} {last}"}}'
    assert answer.startswith(f"Thank you, {first}!")
    assert done.counts["name"] >= 5


@needs_presidio
def test_names_that_were_given_are_not_given_again(talk: Talk) -> None:
    once = talk("I am Maria Gonzalez, ask for John Smith.", "Hello Maria", names=True).messages
    again = talk(*once, names=True)
    assert again.messages == once


@pytest.mark.skipif(INSTALLED, reason="the extra presidio is installed")
def test_without_presidio_the_error_says_what_to_install(talk: Talk) -> None:
    with pytest.raises(ConfigError, match=r"flywheel-loop\[presidio\]"):
        talk("I am Maria Gonzalez", names=True)


def test_nobody_is_called_as_surrogates_are() -> None:
    from faker import Faker

    called: set[str] = set()
    for locale in ("en_US", "en_GB", "en_IN", "de_DE", "fr_FR", "es_ES", "it_IT", "nl_NL", "pl_PL", "pt_BR", "sv_SE"):
        fake = Faker(locale)
        fake.seed_instance(1)
        called |= {part.lower() for _ in range(3000) for part in fake.name().split()}
    assert not called & {name.lower() for name in NAMES}
    assert len(set(NAMES)) == len(NAMES) > 500
