"""Check digits of cards, accounts and national ids: whether a whole number holds, and what completes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

DIGITS = "0123456789"

_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
_DNI = "TRWAGMYFPDXBNJZSQVHLCKE"
_FISCALE_DIGITS = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21)
_FISCALE_LETTERS = (*_FISCALE_DIGITS, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
_FISCALE_ODD = dict(zip(DIGITS + "ABCDEFGHIJKLMNOPQRSTUVWXYZ", _FISCALE_DIGITS + _FISCALE_LETTERS, strict=True))
_VERHOEFF_TURN = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)
_VERHOEFF_TURNS = [tuple(range(10))]
for _ in range(7):
    _VERHOEFF_TURNS.append(tuple(_VERHOEFF_TURN[digit] for digit in _VERHOEFF_TURNS[-1]))


def luhn(number: str) -> bool:
    """ISO/IEC 7812-1: payment cards, Canadian SIN, Swedish personal numbers."""
    total = sum(map(int, number[-1::-2])) + sum(_DOUBLED[int(digit)] for digit in number[-2::-2])
    return total % 10 == 0


def mod_97(account: str) -> bool:
    """ISO 13616: an IBAN without spaces, in capitals."""
    return _mod_97(account[4:] + account[:4]) == 1


def iban(country: str, account: str) -> str:
    """The IBAN of a country's account number, with its check digits."""
    return f"{country}{98 - _mod_97(account + country + '00'):02}{account}"


def mod_11_10(number: str) -> bool:
    """ISO 7064 MOD 11,10: the German tax id."""
    product = 10
    for digit in number[:-1]:
        product = ((int(digit) + product) % 10 or 10) * 2 % 11
    return (product + int(number[-1])) % 10 == 1


def verhoeff(number: str) -> bool:
    """Verhoeff 1969: Aadhaar. Turns and flips of a pentagon instead of a sum."""
    check = 0
    for place, char in enumerate(reversed(number)):
        check = _pentagon(check, _VERHOEFF_TURNS[place % 8][int(char)])
    return check == 0


def bsn(number: str) -> bool:
    """The Dutch eleven test."""
    return weighted(number, (9, 8, 7, 6, 5, 4, 3, 2, -1)) % 11 == 0


def pesel(number: str) -> bool:
    """The last digit of a Polish PESEL."""
    return weighted(number, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)) % 10 == 0


def cpf(number: str) -> bool:
    """The two last digits of a Brazilian CPF; eleven equal digits fit and were never given."""
    return number == cpf_of(number[:9]) and len(set(number)) > 1


def cpf_of(body: str) -> str:
    """Nine digits with the two that check them."""
    for _ in range(2):
        body += str(weighted(body, range(len(body) + 1, 1, -1)) * 10 % 11 % 10)
    return body


def nir_key(body: str) -> str:
    """The two digits that check a French NIR of 13; Corsica's letters count as digits."""
    number = int(body.replace("2A", "19").replace("2B", "18"))
    return f"{97 - number % 97:02}"


def dni_letter(number: str) -> str:
    """The letter behind a Spanish DNI; a NIE's first letter counts as 0, 1 or 2."""
    return _DNI[int(number) % 23]


def fiscale_letter(body: str) -> str:
    """The last letter of an Italian tax code of 16: decree of 23 December 1976."""
    odd = sum(_FISCALE_ODD[char] for char in body[::2])
    even = sum(int(char) if char in DIGITS else ord(char) - 65 for char in body[1::2])
    return chr(65 + (odd + even) % 26)


def complete(body: str, holds: Callable[[str], bool]) -> str:
    """``body`` with the check digit behind it that makes it hold; with a next body, where none does."""
    while True:
        for digit in DIGITS:
            if holds(body + digit):
                return body + digit
        body = body[:-1] + DIGITS[(int(body[-1]) + 1) % 10]


def weighted(number: str, weights: Sequence[int]) -> int:
    """The sum of the digits times their weights."""
    return sum(int(digit) * weight for digit, weight in zip(number, weights, strict=True))


def _mod_97(text: str) -> int:
    return int("".join(str(int(char, 36)) for char in text)) % 97


def _pentagon(one: int, other: int) -> int:
    """Two symmetries of a regular pentagon, one after the other: 0 to 4 turn it, 5 to 9 flip it first."""
    if one < 5:
        return (one + other) % 5 if other < 5 else (one + other) % 5 + 5
    return (one - other) % 5 + 5 if other < 5 else (one - other) % 5
