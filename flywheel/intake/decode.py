"""Bytes of one line to a JSON object that every later step can hold, repaired where the meaning is plain."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from flywheel.intake.records import BadRecord, Json, SkippedRecord

MAX_DEPTH = 64
"""Deepest nesting of objects and lists that is kept; real chat records stay far below."""

_BOM = b"\xef\xbb\xbf"
_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")  # half of a surrogate pair, or NUL


def decode(raw: bytes) -> tuple[Json, set[str]]:
    """Parse one line.

    Returns the object and the names of the repairs made to it: a byte-order mark dropped, lone surrogates and NUL
    characters replaced by U+FFFD, the last of several equal keys kept.

    Raises:
        SkippedRecord: the line is blank.
        BadRecord: it is not UTF-8, not strict JSON (NaN and infinities included), not an object, or nested too deeply.
    """
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
    """The object or list that a string holds as JSON, cleaned like a record itself; anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return _clean(json.loads(value, parse_constant=_refuse), 0, set())
    except (RecursionError, ValueError):
        return value


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
