"""Messages with personal data and secrets whose places are known, and messages with what only looks like them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from faker import Faker
from personal.lookalikes import LOOKALIKES
from personal.phrases import ANYWHERE, BESIDES, SAYING
from personal.values import IDS, LANGUAGES, Person
from personal.vendors import SECRETS, secret_part

KINDS = ("email", "phone", "card", "iban", "national_id", "ip", "crypto", "secret")


@dataclass(frozen=True)
class Truth:
    """``text[start:end]`` is of the kind."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Item:
    """One message; ``truths`` is empty when nothing in it is personal."""

    locale: str
    text: str
    truths: tuple[Truth, ...]


def make(count: int, *, seed: int, locales: Sequence[str] = tuple(LANGUAGES)) -> Iterator[Item]:
    """That many: of six messages two tell one thing, one tells two or three, one has a look-alike, two have neither."""
    rng = random.Random(seed)
    people = []
    for locale in locales:
        fake = Faker(locale)
        fake.seed_instance(rng.getrandbits(32))
        people.append(Person(locale, fake, rng))
    for _ in range(count):
        person = rng.choice(people)
        besides = BESIDES[LANGUAGES[person.locale]]
        pieces = [_plain(rng.choice(besides))]
        match rng.randrange(6):
            case 0 | 1:
                pieces.append(_said(person, rng))
            case 2:
                pieces += [_said(person, rng) for _ in range(rng.choice((2, 3)))]
            case 3:
                pieces.append(_plain(rng.choice(LOOKALIKES)(rng)))
        if rng.random() < 0.5:
            pieces.append(_plain(rng.choice(besides)))
        yield _joined(person.locale, pieces, rng.choice(("\n", " ", "\n\n")))


Piece = tuple[str, tuple[Truth, ...]]


def _plain(text: str) -> Piece:
    return text, ()


def _said(person: Person, rng: random.Random) -> Piece:
    kind = rng.choice(KINDS)
    if kind == "secret":
        vendor = rng.choice(sorted(SECRETS))
        made = rng.choice(SECRETS[vendor])(rng)
        text = rng.choice(ANYWHERE["secret"]).format(made)
        part = secret_part(vendor, made)
        start = text.index(made) + made.index(part)
        return text, (Truth(start, start + len(part), f"secret:{vendor}"),)
    value = person.value(kind)
    said = SAYING[LANGUAGES[person.locale]]
    name = IDS[person.locale] if kind == "national_id" else kind
    phrases = (*said[name], *ANYWHERE.get(kind, ()))
    if kind == "ip" and ":" in value:
        phrases = tuple(phrase for phrase in phrases if "http" not in phrase)
    if kind == "card" and len(value) < 14:
        phrases = tuple(phrase for phrase in phrases if phrase != "{}")  # as long as many other numbers
    text = rng.choice(phrases).format(value)
    start = text.index(value)
    end = start + len(
        value.partition("x")[0].rstrip() if kind == "phone" else value
    )  # an extension tells nobody's number
    return text, (Truth(start, end, f"national_id:{name}" if kind == "national_id" else kind),)


def _joined(locale: str, pieces: Sequence[Piece], gap: str) -> Item:
    text, truths = "", []
    for piece, known in pieces:
        text += gap if text else ""
        truths += [Truth(len(text) + one.start, len(text) + one.end, one.kind) for one in known]
        text += piece
    return Item(locale, text, tuple(truths))
