"""Payment cards and bank accounts (IBAN): told by issuer, length and check digits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from flywheel.datasets.redact.checksums import complete, iban, luhn, mod_97
from flywheel.datasets.redact.draw import Draw, reform
from flywheel.datasets.redact.numbers import Number, Rule
from flywheel.datasets.redact.spans import Kind, Span

_NETWORKS = (
    (re.compile(r"4"), (13, 16, 19), "499999"),
    (re.compile(r"5[1-5]"), (16,), "559999"),
    (re.compile(r"2(?:22[1-9]|2[3-9]|[3-6]|7[01]|720)"), (16,), "229999"),
    (re.compile(r"3[47]"), (15,), "379999"),
    (re.compile(r"3(?:0[0-5]|095|6|[89])"), (14, 16, 19), "389999"),
    (re.compile(r"35"), (16, 17, 18, 19), "358999"),
    (re.compile(r"2131|1800"), (15,), "180099"),
    (re.compile(r"6(?:011|4[4-9]|5)"), (16, 17, 18, 19), "659999"),
    (re.compile(r"62"), (16, 17, 18, 19), "629999"),
    (re.compile(r"60|8[12]"), (16,), "609999"),
    (re.compile(r"220[0-4]"), (16, 19), "220499"),
    (re.compile(r"50|5[6-8]|6[37]"), range(12, 20), "679999"),
)
"""How numbers of each network begin, how long they are, and the issuer of its surrogates: the last digits are nines."""

_ISSUERS = frozenset(issuer for _, _, issuer in _NETWORKS)
_GROUPED = re.compile(r"4([ .-])(?:4\1)+[1-4]|4([ .-])6\2[45]")

_COUNTRIES = {
    **dict.fromkeys(("NO",), 15),
    **dict.fromkeys(("BE",), 16),
    **dict.fromkeys(("DK", "FO", "FI", "GL", "NL", "SD", "FK"), 18),
    **dict.fromkeys(("MK", "SI"), 19),
    **dict.fromkeys(("AT", "BA", "EE", "KZ", "LT", "LU", "XK", "MN"), 20),
    **dict.fromkeys(("HR", "LV", "LI", "CH"), 21),
    **dict.fromkeys(("BG", "BH", "CR", "GE", "DE", "IE", "ME", "RS", "GB", "VA"), 22),
    **dict.fromkeys(("GI", "IL", "AE", "TL", "IQ", "SO", "OM"), 23),
    **dict.fromkeys(("AD", "CZ", "MD", "PK", "RO", "SA", "SK", "ES", "SE", "TN", "VG"), 24),
    **dict.fromkeys(("LY", "PT", "ST"), 25),
    **dict.fromkeys(("IS", "TR"), 26),
    **dict.fromkeys(("FR", "GR", "IT", "MC", "MR", "SM", "BI", "DJ"), 27),
    **dict.fromkeys(("AL", "AZ", "CY", "DO", "GT", "HU", "LB", "PL", "SV", "BY", "NI"), 28),
    **dict.fromkeys(("BR", "QA", "PS", "UA", "EG"), 29),
    **dict.fromkeys(("JO", "KW", "MU", "YE"), 30),
    **dict.fromkeys(("MT", "SC"), 31),
    **dict.fromkeys(("LC",), 32),
    **dict.fromkeys(("RU",), 33),
}
"""Length of an IBAN by country (the registry of ISO 13616)."""

_ACCOUNT = re.compile(r"(?<![0-9A-Za-z])([A-Za-z]{2})[0-9]{2}(?=[ \xa0-]?[0-9A-Za-z])")
_BANK = 4
"""Characters of the bank's code that tell a surrogate: nines and Xs."""


def _read_card(number: Number) -> tuple[str, bool] | None:
    grouped = number.shape.isdigit() or _GROUPED.fullmatch(number.shape)
    if not grouped or not _issuer(number.digits) or not luhn(number.digits):
        return None
    return number.digits, _sure_card(number)


def _sure_card(number: Number) -> bool:
    if len(number.digits) < 14 and "card" not in number.topics:  # old Visa and short Maestro: barcodes are as long
        return False
    return "other" not in number.topics and (number.alone or not _in_a_longer_row(number))


def _in_a_longer_row(number: Number) -> bool:
    """Whether groups of four go on before or behind it, as in the number of a parcel."""
    gap = number.shape.strip("0123456789")[:1]
    if not gap:
        return False
    row = re.compile(rf"[0-9]{{4}}{re.escape(gap)}\Z|\A{re.escape(gap)}[0-9]{{4}}(?![0-9])")
    return bool(
        row.search(number.text[max(0, number.start - 5) : number.start])
        or row.search(number.text[number.end : number.end + 6])
    )


def _issuer(digits: str) -> str:
    for begins, lengths, issuer in _NETWORKS:
        if len(digits) in lengths and begins.match(digits):
            return issuer
    return ""


def _card(digits: str, shown: str, draw: Draw) -> str:
    issuer = _issuer(digits)
    return reform(shown, complete(issuer + draw.digits(len(digits) - len(issuer) - 1), luhn))


CARD = Kind("card", _card, lambda digits: digits[:6] in _ISSUERS)
RULES = [Rule(CARD, range(12, 20), _read_card)]


def find_ibans(text: str) -> Iterator[Span]:
    """Account numbers of every country in the registry, in groups or not, in capitals or not."""
    for begin in _ACCOUNT.finditer(text):
        length = _COUNTRIES.get(begin[1].upper())
        whole = length and _of_length(length).match(text, begin.start())
        if whole:
            account = "".join(filter(str.isalnum, whole[0])).upper()
            if mod_97(account):
                yield Span(begin.start(), whole.end(), IBAN, account)


@lru_cache
def _of_length(count: int) -> re.Pattern[str]:
    """Letters and digits that single spaces or hyphens may divide."""
    return re.compile(rf"[0-9A-Za-z](?:[ \xa0-]?[0-9A-Za-z]){{{count - 1}}}(?![0-9A-Za-z])")


def _iban(account: str, shown: str, draw: Draw) -> str:
    number = account[4:]
    return reform(shown, iban(account[:2], _unissued(number) + draw.like(number[_BANK:])))


def _unissued(number: str) -> str:
    return "".join("9" if char.isdigit() else "X" for char in number[:_BANK])


IBAN = Kind("iban", _iban, lambda account: account[4 : 4 + _BANK] == _unissued(account[4:]))
