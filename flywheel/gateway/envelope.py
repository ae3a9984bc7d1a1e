"""A request body that is passed on: read for its log record, and given another ``model`` without touching the rest.

The new name is put in the old one's place in the text itself, so key order, the spelling of numbers, escapes, repeated
keys and fields that nobody here knows reach the other side byte for byte.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from flywheel.gateway.bodies import finite

_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True)
class Envelope:
    """A body that is a JSON object.

    Attributes:
        body: what it says; of a repeated key the last value. NaN, infinities and numbers out of range are None.
    """

    body: dict[str, Any]
    _text: str
    _models: tuple[tuple[int, int], ...]  # where the values of the keys ``model`` stand

    @property
    def model(self) -> str:
        """The model asked for; "" without one."""
        model = self.body.get("model")
        return model if isinstance(model, str) else ""

    def readdressed(self, model: str) -> bytes:
        """The same body, asking for another model."""
        pieces, place = [], 0
        for start, end in self._models:
            pieces += [self._text[place:start], json.dumps(model)]
            place = end
        return "".join([*pieces, self._text[place:]]).encode()


def open_envelope(raw: bytes) -> Envelope | None:
    """Read a body as far as anybody could; None when it is not a JSON object in UTF-8."""
    try:
        text = raw.decode("utf-8")
        return _open(text)
    except (ValueError, RecursionError):
        return None


def _open(text: str) -> Envelope:
    body: dict[str, Any] = {}
    models: list[tuple[int, int]] = []
    place = _past(text, "{", _skip(text, 0))
    more = text[place : place + 1] != "}"
    while more:
        key, place = _DECODER.raw_decode(text, place)
        if not isinstance(key, str):
            raise ValueError("a key is not a string")
        start = _past(text, ":", _skip(text, place))
        body[key], place = _DECODER.raw_decode(text, start)
        if key == "model":
            models.append((start, place))
        place = _skip(text, place)
        more = text[place : place + 1] == ","
        if more:
            place = _past(text, ",", place)
    if _past(text, "}", place) != len(text):
        raise ValueError("text after the object")
    return Envelope(body, text, tuple(models))


def _past(text: str, sign: str, place: int) -> int:
    """The place after ``sign`` and the white space behind it. Raises ValueError when something else is there."""
    if text[place : place + 1] != sign:
        raise ValueError(f"expected {sign}")
    return _skip(text, place + 1)


def _skip(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place


_DECODER = json.JSONDecoder(parse_float=finite, parse_constant=lambda _: None, strict=False)
