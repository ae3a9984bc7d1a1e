"""Personal data of nobody, by locale: Faker's where it has it, published vectors, and numbers made by their rules."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass

from faker import Faker
from personal.vectors import ADDRESSES, CARDS, IBANS
from stdnum import iban, verhoeff

LANGUAGES = {
    "en_US": "en",
    "en_GB": "en",
    "en_IN": "en",
    "en_CA": "en",
    "de_DE": "de",
    "fr_FR": "fr",
    "es_ES": "es",
    "it_IT": "it",
    "nl_NL": "nl",
    "pl_PL": "pl",
    "pt_BR": "pt",
    "sv_SE": "sv",
}
"""The locales, and the language of their messages."""

IDS = {
    "en_US": "us_ssn",
    "en_GB": "uk_nino",
    "en_IN": "in_aadhaar",
    "en_CA": "ca_sin",
    "de_DE": "de_steuer_id",
    "fr_FR": "fr_nir",
    "es_ES": "es_dni",
    "it_IT": "it_codice_fiscale",
    "nl_NL": "nl_bsn",
    "pl_PL": "pl_pesel",
    "pt_BR": "br_cpf",
    "sv_SE": "se_personnummer",
}

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


@dataclass
class Person:
    """Where the values of one locale come from."""

    locale: str
    fake: Faker
    rng: random.Random

    def value(self, kind: str) -> str:
        """A value of the kind, as a person of the locale writes it."""
        makers: dict[str, Callable[[], str]] = {
            "email": self._email,
            "phone": self.fake.phone_number,
            "card": self._card,
            "iban": self._iban,
            "ip": self._ip,
            "crypto": self._crypto,
            "national_id": self._id,
        }
        return makers[kind]()

    def _email(self) -> str:
        address = self.rng.choice(
            (self.fake.free_email, self.fake.company_email, lambda: self.fake.email(safe=False))
        )()
        return address.upper() if self.rng.random() < 0.03 else str(address)

    def _card(self) -> str:
        if self.rng.random() < 0.3:
            number = self.rng.choice(CARDS)
        else:
            network = self.rng.choice(
                ("visa", "visa16", "mastercard", "amex", "discover", "jcb16", "diners", "maestro")
            )
            number = self.fake.credit_card_number(card_type=network)
            while number[0] == "0":  # no card does, but some of Faker's
                number = self.fake.credit_card_number(card_type=network)
        gap = self.rng.choice(("", " ", "-", " "))
        if not gap or len(number) not in (14, 15, 16, 19):
            return number
        if len(number) in (14, 15):
            return gap.join((number[:4], number[4:10], number[10:]))
        return gap.join(number[i : i + 4] for i in range(0, len(number), 4))

    def _iban(self) -> str:
        number = self.fake.iban()
        if self.rng.random() < 0.5 or not iban.is_valid(number, check_country=False):  # some of Faker's are too short
            number = self.rng.choice(IBANS)
        if self.rng.random() < 0.5:
            number = " ".join(number[i : i + 4] for i in range(0, len(number), 4))
        return number.lower() if self.rng.random() < 0.05 else number

    def _ip(self) -> str:
        return str(self.rng.choice((self.fake.ipv4_public, self.fake.ipv4_private, self.fake.ipv4, self.fake.ipv6))())

    def _crypto(self) -> str:
        roll = self.rng.random()
        if roll < 0.3:
            return self.rng.choice(ADDRESSES)
        if roll < 0.6:
            return "0x" + self.rng.randbytes(20).hex()
        return base58check(self.rng.choice((0, 5, 30, 48, 65)), self.rng.randbytes(20))

    def _id(self) -> str:
        fake, rng = self.fake, self.rng
        match self.locale:
            case "en_IN":
                body = str(rng.randrange(2 * 10**10, 10**11))  # Faker's have another check digit
                digits = body + verhoeff.calc_check_digit(body)
                return rng.choice((digits, f"{digits[:4]} {digits[4:8]} {digits[8:]}"))
            case "de_DE":
                digits = steuer_id(rng)
                return rng.choice((digits, f"{digits[:2]} {digits[2:5]} {digits[5:8]} {digits[8:]}"))
            case "fr_FR":
                digits = fake.ssn().replace(" ", "")
                return rng.choice((digits, " ".join(_cut(digits, 1, 2, 2, 2, 3, 3, 2))))
            case "en_GB":
                return nino(rng)
            case "es_ES":
                return str(rng.choice((fake.nif, fake.nie))())
            case "pl_PL":
                return str(fake.pesel())
            case "pt_BR":
                return str(fake.cpf())
            case _:
                return str(fake.ssn())


def base58check(version: int, body: bytes) -> str:
    """An address with its check digits."""
    raw = bytes([version]) + body
    raw += hashlib.sha256(hashlib.sha256(raw).digest()).digest()[:4]
    number, text = int.from_bytes(raw, "big"), ""
    while number:
        number, place = divmod(number, 58)
        text = _BASE58[place] + text
    return "1" * (len(raw) - len(raw.lstrip(b"\0"))) + text


def nino(rng: random.Random) -> str:
    """A British national insurance number; Faker's all begin with ZZ, which none does."""
    while True:
        prefix = rng.choice("ABCEGHJKLMNOPRSTWXYZ") + rng.choice("ABCEGHJKLMNPRSTWXYZ")
        if prefix not in ("BG", "GB", "NK", "KN", "TN", "NT", "ZZ") and prefix[0] != "O":
            break
    digits = f"{rng.randrange(10**6):06}"
    gap = rng.choice(("", " "))
    return gap.join((prefix, digits[:2], digits[2:4], digits[4:], rng.choice("ABCD")))


def steuer_id(rng: random.Random) -> str:
    """A German tax id: ten digits of which one is there twice or three times, and ISO 7064 MOD 11,10."""
    while True:
        repeated = rng.choice((2, 3))
        different = rng.sample("0123456789", 11 - repeated)
        digits = [*different, *[different[0]] * (repeated - 1)]
        rng.shuffle(digits)
        if digits[0] != "0":
            break
    product = 10
    for digit in digits:
        total = (int(digit) + product) % 10
        product = (total or 10) * 2 % 11
    return "".join(digits) + str((11 - product) % 10)


def _cut(text: str, *lengths: int) -> list[str]:
    parts, done = [], 0
    for length in lengths:
        parts.append(text[done : done + length])
        done += length
    return parts
