"""National ids with letters in them: their form tells them, and a check letter where they have one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flywheel.datasets.redact import checksums as check
from flywheel.datasets.redact.context import topics
from flywheel.datasets.redact.draw import Draw, reform
from flywheel.datasets.redact.spans import Kind, Span

_LETTERED = re.compile(
    r"(?<![0-9A-Za-zÀ-ɏ_])(?<![0-9A-Za-z]-)(?:"
    r"(?P<nino>[A-Z]{2}[ -]?[0-9]{2}([ -]?)[0-9]{2}\2[0-9]{2}[ -]?[A-D]|[a-z]{2}[0-9]{6}[a-d])"
    r"|(?P<dni>(?:[0-9]{8}|[0-9]{2}\.[0-9]{3}\.[0-9]{3}|[XYZ][ -]?[0-9]{7})[ -]?[A-Z]"
    r"|(?:[0-9]{8}|[xyz][0-9]{7})-?[a-z])"
    r"|(?P<fiscale>(?i:[A-Z]{3} ?[A-Z]{3} ?[0-9LMNP-V]{2} ?[A-EHLMPRST] ?[0-9LMNP-V]{2} ?[A-Z][0-9LMNP-V]{3} ?[A-Z]))"
    r"|(?P<corsican>(?i:[12] ?[0-9]{2} ?[0-9]{2} ?2[AB] ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}))"
    r")(?![0-9A-Za-zÀ-ɏ_])(?!-[0-9A-Za-z])"
)

_NO_NINO = frozenset(("BG", "GB", "NK", "KN", "TN", "NT", "ZZ"))
_EXAMPLE = "QQ"
"""What a NINO in examples begins with; none that was given does."""
_NOWHERE = "X999"
"""A town that no Italian tax code names."""
_DIGITS_OF = str.maketrans("LMNPQRSTUV", "0123456789")


def find_lettered_ids(text: str) -> Iterator[Span]:
    """All of them; the reader of each gives the value, or ``""``."""
    for match in _LETTERED.finditer(text):
        kind, read = _READERS[match.lastgroup or ""]
        value = read("".join(filter(str.isalnum, match[0])).upper())
        if value:
            sure = kind is not NINO or "other" not in topics(text, match.start(), match.end())
            yield Span(match.start(), match.end(), kind, value, sure)


def _read_nino(value: str) -> str:
    possible = not set(value[:2]) & set("DFIQUV") and value[1] != "O" and value[:2] not in _NO_NINO
    return value if possible or value.startswith(_EXAMPLE) else ""


def _read_dni(value: str) -> str:
    number = value[:-1].replace("X", "0").replace("Y", "1").replace("Z", "2")
    return value if check.dni_letter(number) == value[-1] else ""


def _read_fiscale(value: str) -> str:
    day = value[9:11].translate(_DIGITS_OF)
    fits = check.fiscale_letter(value[:-1]) == value[-1] and 1 <= int(day) % 40 <= 31
    return value if fits else ""


def _read_corsican(value: str) -> str:
    return value if value[13:] == check.nir_key(value[:13]) else ""


def _nino(value: str, shown: str, draw: Draw) -> str:
    return reform(shown, f"{_EXAMPLE}{draw.digits(6)}{draw.pick('ABCD')}")


def _dni(value: str, shown: str, draw: Draw) -> str:
    """Numbers that begin with 99, and of foreigners with Z99, are far from being given."""
    if value[0].isdigit():
        number = f"99{draw.digits(6)}"
        return reform(shown, number + check.dni_letter(number))
    number = f"99{draw.digits(5)}"
    return reform(shown, f"Z{number}{check.dni_letter('2' + number)}")


def _fiscale(value: str, shown: str, draw: Draw) -> str:
    consonants = "".join(draw.pick("BCDFGLMNPRSTVZ") for _ in range(6))
    body = f"{consonants}{draw.digits(2)}{draw.pick('ABCDEHLMPRST')}{draw.below(28) + 1:02}{_NOWHERE}"
    return reform(shown, body + check.fiscale_letter(body))


def _corsican(value: str, shown: str, draw: Draw) -> str:
    body = f"{value[0]}{draw.digits(2)}{draw.below(12) + 1:02}{value[5:7]}{draw.digits(3)}000"
    return reform(shown, body + check.nir_key(body))


NINO = Kind("national_id:uk_nino", _nino, lambda value: value.startswith(_EXAMPLE))
DNI = Kind("national_id:es_dni", _dni, lambda value: value.startswith(("99", "Z99")))
FISCALE = Kind("national_id:it_codice_fiscale", _fiscale, lambda value: value[11:15] == _NOWHERE)
CORSICAN = Kind("national_id:fr_nir", _corsican, lambda value: value[10:13] == "000")

_READERS = {
    "nino": (NINO, _read_nino),
    "dni": (DNI, _read_dni),
    "fiscale": (FISCALE, _read_fiscale),
    "corsican": (CORSICAN, _read_corsican),
}
