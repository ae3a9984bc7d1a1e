"""Bytes of one line to a JSON object that every later step can hold, repaired where the meaning is plain."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

import orjson

from flywheel.intake.records import BadRecord, Json, SkippedRecord

T = TypeVar("T")

MAX_DEPTH = 64
"""Deepest nesting of objects and lists that is kept; real chat records stay far below."""

_inside: ContextVar[set[str]] = ContextVar("_inside")  # the repairs of the record that is being read
_BOM = b"\xef\xbb\xbf"
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_SPACE = b" \t\r\n"
_LONG_NUMBER = b"0" * 19  # more digits than every parser holds as a whole number
_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")  # half of a surrogate pair, or NUL


def decode(raw: bytes) -> tuple[Json, set[str]]:
    """Parse one line.

    Returns the object and the names of the repairs made to it: a byte-order mark dropped, lone surrogates and NUL
    characters replaced by U+FFFD, the last of several equal keys kept.

    Raises:
        SkippedRecord: the line is blank.
        BadRecord: it is not UTF-8, not strict JSON (NaN and infinities included), not an object, or nested too deeply.
    """
    sound = _sound(raw)
    return (sound, set()) if isinstance(sound, dict) else mended(raw)


def mended(raw: bytes) -> tuple[Json, set[str]]:
    """`decode` for lines that may need a repair: by Python's own parser, which sees every key and every number."""
    repairs: set[str] = set()
    if raw.startswith(_BOM):
        raw = raw[len(_BOM) :]
        repairs.add("byte-order mark")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRecord("not UTF-8") from None
    if not text.strip():
        raise SkippedRecord("blank line")

    def unique(pairs: list[tuple[str, Any]]) -> Json:
        found = dict(pairs)
        if len(found) < len(pairs):
            repairs.add("duplicate key")
        return found

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=_refuse)
    except RecursionError:
        raise BadRecord("nested too deeply") from None
    except BadRecord:
        raise
    except ValueError:
        raise BadRecord("not JSON") from None
    if not isinstance(value, dict):
        raise BadRecord("not a JSON object")
    cleaned: Json = _clean(value, 0, repairs)
    return cleaned, repairs


def inner(value: Any) -> Any:
    """The object or list that a string holds as JSON, cleaned like a record itself; anything else as it is.

    Called by `noting`, it notes its repairs.
    """
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    repairs: set[str] = set()
    try:
        if (sound := _sound(value.encode())) is not None:
            return sound
        found = _clean(json.loads(value, parse_constant=_refuse), 0, repairs)
    except (RecursionError, ValueError):
        return value
    if repairs:
        _inside.get(set()).update(repairs)
    return found


def noting(repairs: set[str], read: Callable[..., T], *args: Any) -> T:
    """What ``read(*args)`` returns; the repairs that `inner` makes meanwhile are added to ``repairs``."""
    token = _inside.set(repairs)
    try:
        return read(*args)
    finally:
        _inside.reset(token)


def _sound(raw: bytes) -> Any:
    """The object or list, when orjson reads what `json` does and nothing needs a repair; None when that is not certain.

    orjson says nothing about equal keys. What it writes as it stood had none; elsewhere as many ends of keys in what it
    read as in the line mean so.
    """
    try:
        value = orjson.loads(raw)
        if not isinstance(value, dict | list):
            return None
        written = orjson.dumps(value)
    except ValueError:
        return None
    escapes = b"\\" in raw
    if escapes and b"\\u0000" in raw:
        return None
    if written != raw and not _same_keys(raw, written, escapes):
        return None
    if raw.count(b"{") + raw.count(b"[") >= MAX_DEPTH and _too_deep(value):
        return None
    return value


def _same_keys(raw: bytes, written: bytes, escapes: bool) -> bool:
    """Whether a line has as many keys as what was read from it, and no number that parsers may differ on."""
    if escapes and b'\\\\"' in raw:
        return False  # the quote behind it may end a text or not
    text = raw.translate(_ZEROS, _SPACE)
    if _LONG_NUMBER in text:
        return False
    return _key_ends(text, escapes) == _key_ends(written.translate(None, _SPACE) if escapes else written, escapes)


def _key_ends(text: bytes, escapes: bool) -> int:
    return text.count(b'":') - (text.count(b'\\":') if escapes else 0)


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        inside = (one for held in level for one in (held.values() if isinstance(held, dict) else held))
        level = [one for one in inside if isinstance(one, dict | list)]
    return any(level)


def _refuse(_constant: str) -> NoReturn:
    raise BadRecord("NaN or infinity is not JSON")


def _clean(value: Any, depth: int, repairs: set[str]) -> Any:
    if depth > MAX_DEPTH:
        raise BadRecord("nested too deeply")
    if isinstance(value, str):
        if _UNSTORABLE.search(value) is None:
            return value
        repairs.add("unstorable character")
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadRecord("number out of range")
    if isinstance(value, list):
        return [_clean(item, depth + 1, repairs) for item in value]
    if isinstance(value, dict):
        return {_clean(key, depth, repairs): _clean(item, depth + 1, repairs) for key, item in value.items()}
    return value
