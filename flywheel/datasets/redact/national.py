"""National ids made of digits: the form and check digits of each, and numbers of that form that no one is ever given.

One that is written without punctuation, or in a form that other things have too, needs a word nearby that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flywheel.datasets.redact import checksums as check
from flywheel.datasets.redact.draw import Draw, reform
from flywheel.datasets.redact.numbers import Number, Rule
from flywheel.datasets.redact.spans import Kind


@dataclass(frozen=True)
class NationalId:
    """One country's number.

    Attributes:
        digits: how many there are; ``more`` lengths bring something in front, which is kept.
        topic: what words nearby must say where the form alone does not.
        telling: shapes that need no such word.
        shapes: others in which it is written, besides digits alone.
        holds: whether a number could be somebody's.
        invented: whether nobody has it: what ``invent`` makes.
        invent: such a number.
    """

    name: str
    digits: int
    topic: str
    telling: tuple[str, ...]
    holds: Callable[[str], bool]
    invented: Callable[[str], bool]
    invent: Callable[[str, Draw], str]
    shapes: tuple[str, ...] = ()
    more: tuple[int, ...] = ()

    def rule(self) -> Rule:
        """As a rule for numbers."""
        lengths = (self.digits, *self.more)
        shapes = frozenset((*self.telling, *self.shapes, *map(str, lengths)))

        def read(number: Number) -> tuple[str, bool] | None:
            value = number.digits[-self.digits :]
            if number.shape not in shapes or not (self.holds(value) or self.invented(value)):
                return None
            return value, sure(number)

        def sure(number: Number) -> bool:
            if self.topic in number.topics:
                return True
            if number.shape not in self.telling or "other" in number.topics:
                return False
            return number.alone or " " not in number.shape  # groups between spaces may belong to a longer number

        def surrogate(value: str, shown: str, draw: Draw) -> str:
            kept = "".join(filter(str.isdigit, shown))[: -self.digits]
            return reform(shown, kept + self.invent(value, draw))

        return Rule(Kind(f"national_id:{self.name}", surrogate, self.invented), lengths, read)


def _date(digits: str) -> bool:
    """Whether month and day could be: ``mmdd``."""
    return 1 <= int(digits[:2]) <= 12 and 1 <= int(digits[2:]) <= 31


def _ssn(number: str) -> bool:
    area, group, serial = number[:3], number[3:5], number[5:]
    taxpayer = area[0] == "9" and ("50" <= group <= "65" or ("70" <= group <= "99" and group not in ("89", "93")))
    return (taxpayer or (area[0] != "9" and area not in ("000", "666"))) and group != "00" and serial != "0000"


def _pesel(number: str) -> bool:
    month = int(number[2:4]) % 20
    return check.pesel(number) and _date(f"{month:02}{number[4:6]}")


def _steuer_id(number: str) -> bool:
    different = set(number[:10])
    most = max(map(number[:10].count, different))  # one digit is there two or three times, the others once
    return number[0] != "0" and (most, len(different)) in ((2, 9), (3, 8)) and check.mod_11_10(number)


def _personnummer(number: str) -> bool:
    day = int(number[4:6])
    return check.luhn(number) and _date(f"{number[2:4]}{day - 60 if day > 60 else day:02}")


def _nir(number: str) -> bool:
    month = number[3:5]
    return (
        number[0] in "123478"
        and ("01" <= month <= "12" or "20" <= month <= "42" or month >= "50")
        and number[5:7] != "00"
        and number[13:] == check.nir_key(number[:13])
    )


def _begins(start: str, holds: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda number: number.startswith(start) and holds(number)


def _behind(start: str, count: int, holds: Callable[[str], bool]) -> Callable[[str, Draw], str]:
    return lambda _, draw: check.complete(start + draw.digits(count), holds)


def _leading(draw: Draw, count: int) -> str:
    """Digits without a zero in front: in JSON the number may be one."""
    return str(draw.below(9) + 1) + draw.digits(count - 1)


IDS = (
    NationalId(
        "us_ssn",
        9,
        "ssn",
        ("3-2-4", "3 2 4"),
        _ssn,
        lambda n: n.startswith("666"),  # an area that was never given
        lambda _, draw: f"666{draw.below(99) + 1:02}{draw.below(9999) + 1:04}",
    ),
    NationalId(
        "ca_sin",
        9,
        "sin",
        (),
        check.luhn,
        _begins("8999", check.luhn),
        _behind("8999", 4, check.luhn),
        shapes=("3 3 3", "3-3-3"),
    ),
    NationalId(
        "nl_bsn",
        9,
        "bsn",
        (),
        check.bsn,
        _begins("9999", check.bsn),
        _behind("9999", 4, check.bsn),
        shapes=("3 3 3", "3.3.3", "4.2.3"),
    ),
    NationalId(
        "se_personnummer",
        10,
        "personnummer",
        ("6-4", "8-4"),
        _personnummer,
        lambda n: n[2:4] == "99" and check.luhn(n),  # born in a month that is none
        lambda _, draw: check.complete(f"{_leading(draw, 2)}99{draw.digits(5)}", check.luhn),
        more=(12,),
    ),
    NationalId(
        "pl_pesel",
        11,
        "pesel",
        (),
        _pesel,
        lambda n: n[2:4] == "99" and check.pesel(n),
        lambda _, draw: check.complete(f"{_leading(draw, 2)}99{draw.digits(6)}", check.pesel),
    ),
    NationalId(
        "de_steuer_id",
        11,
        "tax",
        (),
        _steuer_id,
        _begins("9999", check.mod_11_10),  # no digit is there more than three times
        _behind("9999", 6, check.mod_11_10),
        shapes=("2 3 3 3", "2 3 6", "3 3 3 2"),
    ),
    NationalId(
        "br_cpf",
        11,
        "cpf",
        ("3.3.3-2",),
        check.cpf,
        _begins("9999", check.cpf),
        lambda _, draw: check.cpf_of("9999" + draw.digits(4) + str(draw.below(9))),
    ),
    NationalId(
        "in_aadhaar",
        12,
        "aadhaar",
        ("4 4 4", "4-4-4"),
        lambda n: n[0] not in "01" and check.verhoeff(n),
        _begins("1", check.verhoeff),  # none begins so
        _behind("1", 10, check.verhoeff),
    ),
    NationalId(
        "fr_nir",
        15,
        "nir",
        ("15", "13 2", "1 2 2 2 3 3 2", "1-2-2-2-3-3-2", "1.2.2.2.3.3.2"),
        _nir,
        lambda n: n[5:7] == "00" and n[13:] == check.nir_key(n[:13]),  # a department that is none
        lambda value, draw: _with_key(f"{value[0]}{draw.digits(2)}{draw.below(12) + 1:02}00{draw.digits(6)}"),
    ),
)


def _with_key(body: str) -> str:
    return body + check.nir_key(body)


RULES = [national_id.rule() for national_id in IDS]
