"""Telephone numbers: with a country code, in a national form that nothing else has, or where words say so.

A surrogate keeps country code, trunk prefix, first digit, length and punctuation; 5550 follows the first digit, or,
where area code and exchange are as in North America, 555-01 stands before the last two: the numbers that films use.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from flywheel.datasets.redact.draw import Draw, reform
from flywheel.datasets.redact.numbers import Number, Rule
from flywheel.datasets.redact.spans import Kind

_TWO = (
    "20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 65 66 81 82 84 86 90"
    " 91 92 93 94 95 98"
)
_THREE = "21 22 23 24 25 26 29 35 37 38 42 50 59 67 68 69 80 85 87 88 96 97 99"
_CODES, _CODE_BEGINNINGS = frozenset(_TWO.split()), frozenset(_THREE.split())
"""Country codes of two digits, and how those of three begin (ITU-T E.164); 1 and 7 are whole codes."""

_LENGTHS = {
    **dict.fromkeys(("1", "7", "91"), (10, 10)),
    **dict.fromkeys(("31", "33", "34", "41", "48", "61"), (9, 9)),
    **dict.fromkeys(("45", "47"), (8, 8)),
    **dict.fromkeys(("44", "46"), (7, 10)),
    "32": (8, 9),
    "39": (6, 11),
    "43": (5, 12),
    "55": (10, 11),
    "81": (9, 10),
    "86": (10, 11),
}
_ANY_LENGTH = (6, 12)
"""Digits behind the country code."""

_AMERICAN = re.compile(r"(?:1[ .-]|1 \()?3(?:[ .-]|\) ?|\)-)3[ .-]4")
_IBERIAN = re.compile(r"3 2 2 2|2 3 2 2|3-2-2-2|2-3-2-2")
_AREA = re.compile(r"[2-5]\)")
_GROUP_BEFORE = re.compile(r"[0-9][ \xa0\u202f]\Z")
_LAST_GROUP = re.compile(r"(?<![0-9])[2-9]\Z")
_NO_PHONE = re.compile(
    r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9.])|[0-9]\.[0-9]{4,}"
    r"|[0-3]?[0-9]([./-])[0-3]?[0-9]\1(?:19|20)[0-9]{2}(?![0-9])"
    r"|(?:19|20)[0-9]{2}([./-])[01]?[0-9]\2[0-3]?[0-9](?![0-9])"
    r"|(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])\Z"
)
"""IP addresses, fractions and dates."""


class _Parts(NamedTuple):
    """``kept`` is what a surrogate keeps: the codes and the trunk prefix. No ``national`` number: no phone."""

    kept: str
    code: str
    national: str


def _read(number: Number) -> tuple[str, bool] | None:
    """The national number without trunk prefix: what all ways of writing it share."""
    parts = _parts(number)
    return (parts.national, _sure(number, parts)) if parts.national else None


def _sure(number: Number, parts: _Parts) -> bool:
    digits, shape = number.digits, number.shape
    if number.plus:
        return _fits(parts)
    if "other" in number.topics or _NO_PHONE.match(number.text[number.start : number.end].lstrip("(")):
        return False
    if "phone" in number.topics:
        return True
    if shape.isdigit() or (" " in shape and _GROUP_BEFORE.match(number.text, max(0, number.start - 2), number.start)):
        return False
    if parts.code:
        return _fits(parts)
    if _LAST_GROUP.search(shape) is None:
        return False
    if _AMERICAN.fullmatch(shape) and parts.national[0] in "23456789":
        return True
    if number.text[number.start] == "(":
        return 8 <= len(digits) <= 12 and _AREA.match(shape) is not None
    if digits[0] == "0":
        return digits[1] != "0" and 9 <= len(digits) <= 12
    return _IBERIAN.fullmatch(shape) is not None and number.alone


def _parts(number: Number) -> _Parts:
    digits, before = number.digits, 0
    if number.plus or number.text.startswith("00", number.start + (number.text[number.start] == "(")):
        before = 0 if number.plus else 2
        code = _country_code(digits[before:])
        before += len(code)
        if code and code != "39" and digits.startswith("0", before):  # Italy's belongs to the number
            before += 1
        if code and 6 <= len(digits) - before <= 13:
            return _Parts(digits[:before], code, digits[before:])
        if number.plus:
            return _Parts(digits, "", "")
    before = int(digits[0] == "0" or (len(digits) == 11 and digits[0] == "1"))
    return _Parts(digits[:before], "", digits[before:] if 6 <= len(digits) - before <= 13 else "")


def _country_code(digits: str) -> str:
    if digits[:1] in ("1", "7"):
        return digits[0]
    if digits[:2] in _CODES:
        return digits[:2]
    return digits[:3] if digits[:2] in _CODE_BEGINNINGS and len(digits) > 2 else ""


def _fits(parts: _Parts) -> bool:
    """Whether the number is as long as the country's are, with the trunk prefix or without."""
    least, most = _LENGTHS.get(parts.code, _ANY_LENGTH)
    return least - parts.kept.endswith("0") <= len(parts.national) <= most


def _american(national: str) -> bool:
    return len(national) == 10 and national[0] not in "01" and national[3] not in "01"


def _invented(national: str) -> bool:
    if len(national) == 7:
        return national.startswith("55501")
    return national[1:5] == "5550" or (_american(national) and national[3:8] == "55501")


def _surrogate(national: str, shown: str, draw: Draw) -> str:
    digits = "".join(filter(str.isdigit, shown))
    if len(national) == 7:
        new = "55501" + draw.digits(2)
    elif _american(national):
        new = f"{national[0]}{draw.digits(2).replace('11', '12')}55501{draw.digits(2)}"
    else:
        new = f"{national[0]}5550{draw.digits(len(national) - 5)}"
    return reform(shown, digits[: -len(national)] + new)


PHONE = Kind("phone", _surrogate, _invented)
RULES = [Rule(PHONE, range(7, 16), _read)]
