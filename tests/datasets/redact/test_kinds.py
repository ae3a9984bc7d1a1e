from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

import pytest
from stdnum.es import dni
from stdnum.fr import nir
from stdnum.iban import is_valid as is_iban
from stdnum.luhn import is_valid as luhn

Clean = Callable[..., str]

PERSONAL = {
    "email": ("ana.ruiz+x@mail.acme.co.uk", "<müller@firma.de>", "联系ana@acme.io", "o'neil@acme.io", "ANA@ACME.IO."),
    "phone": (
        "(415) 867-5309",
        "415.867.5309",
        "+1 415-867-5309x123",
        "001-415-867-5309",
        "tel 4158675309",
        "call 867-5309",
        "+44 (0)20 7946 0958",
        "020 7946 0958",
        "07911 123456",
        "+49 30 901820",
        "030/901820-17",
        "06 12 34 56 78",
        "+33612345678",
        "612 34 56 78",
        "+34 612 345 678",
        "mi móvil: 612345678",
        "+39 347 1234567",
        "06-12345678",
        "zadzwoń: 601 234 567",
        "(11) 98765-4321",
        "08-123 456 78",
        "+91 98765 43210",
        '{"phoneNumber":4158675309}',
        "4158675309 is my phone",
    ),
    "card": ("4111 1111 1111 1111", "378282246310005", "5105-1051-0510-5100", "order 7 was paid with 4111111111111111"),
    "iban": ("DE89 3704 0044 0532 0130 00", "gb29nwbk60161331926819", "NO93 8601 1117 947, thanks"),
    "us_ssn": ("078-05-1120", "SSN 078051120", "social security 078 05 1120"),
    "uk_nino": ("AB 12 34 56 C", "JG103759A"),
    "es_dni": ("54362315K", "54.362.315-K", "X2482300W"),
    "it_codice_fiscale": ("RCCMNL83S18D969H", "RCC MNL 83S18 D969H"),
    "de_steuer_id": ("Steuer-ID 36 574 261 809", "IdNr 36574261809"),
    "nl_bsn": ("BSN 111222333",),
    "pl_pesel": ("PESEL 44051401359",),
    "fr_nir": ("2 95 10 99 126 111 93", "295109912611193"),
    "in_aadhaar": ("2341 2341 2346", "Aadhaar 234123412346"),
    "br_cpf": ("390.533.447-05", "CPF 39053344705"),
    "ca_sin": ("SIN 123 456 782", "social insurance number 123456782"),
    "se_personnummer": ("880320-0016", "19880320-0016", "personnummer 8803200016"),
    "ip": ("81.2.69.142", "http://10.1.2.3:8080/x", "2a02:8070::1f", "fe80::1ff:fe23:4567:890a", "my IP is 1.2.3.4"),
    "crypto": (
        "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
        "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy",
        "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
        "BC1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KV8F3T4",
        "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh",
        "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t",
        "my solana wallet: 9WzDXwBbmkg8ZTbNMqUxvQRAyrZzDsGYdLVL9zYtAWWM",
    ),
}

IMPERSONAL = (
    "order 4158675309",
    "Bestellnummer 0301234567",
    "call me on 2026-05-06 or 06.05.2026",
    "1717171717 and 1717171717000",
    "1,234,567,890 of 12 345 678",
    "52.520008, 13.404954",
    "0.4111111111111111",
    "550e8400-e29b-41d4-a716-446655440000",
    "4111111111111112",
    "tracking 4111 1111 1111 1111 2222",
    "DE88 3704 0044 0532 0130 00",
    "ISBN 978-3-16-148410-0 and 0-306-40615-2",
    "123 45 678",
    "version 81.2.69.142",
    "v1.2.3.4, 1.2.3.4 and thing==81.2.69.142",
    "Chrome/120.0.0.0 at 127.0.0.1 behind 255.255.255.0",
    "12:30:45 in std::vector and a::b, 00:1a:2b:3c:4d:5e",
    "icon@2x.png and git@github.com:acme/x.git, lodash@4.17.21, @ana",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed00",
    "54362315A and RCCMNL83S18D969A",
    "111222333 and 36574261809 and 44051401359",
    "IMEI 356938035643809",
)

INVENTED = (
    "ana@example.com, ana@mail.example.org, ana@host.test",
    "(212) 555-0142 and call 555-0142",
    "192.0.2.7, 198.51.100.7, 203.0.113.7 and 2001:db8::7",
    "QQ 12 34 56 C",
    "666-12-3456",
)


def form(text: str) -> str:
    return re.sub("[a-z]", "a", re.sub("[0-9]", "9", re.sub("[A-Z]", "A", text)))


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in PERSONAL.items() for text in texts])
def test_what_is_personal_becomes_something_else_of_its_form_and_stays_that(kind: str, text: str, clean: Clean) -> None:
    new = clean(text)
    assert new != text
    assert clean(new) == new
    assert clean(new, conversation="d") == new
    if kind not in ("email", "ip", "crypto"):
        assert form(new) == form(text)


@pytest.mark.parametrize("text", IMPERSONAL + INVENTED)
def test_look_alikes_and_surrogates_stay(text: str, clean: Clean) -> None:
    assert clean(text) == text


@pytest.mark.parametrize("kind", PERSONAL)
def test_each_value_is_counted_under_its_kind(kind: str, talk: Callable[..., object]) -> None:
    for text in PERSONAL[kind]:
        assert {name.rpartition(":")[2] for name in talk(text).counts} == {kind}, text  # type: ignore[attr-defined]


def test_surrogates_have_the_check_digits_of_their_kind(clean: Clean) -> None:
    assert luhn(clean("4111 1111 1111 1111").replace(" ", ""))
    assert luhn(clean("378282246310005")) and len(clean("378282246310005")) == 15
    for account in ("DE89370400440532013000", "GB29NWBK60161331926819", "FR1420041010050500013M02606"):
        new = clean(account)
        assert is_iban(new, check_country=False) and new[:2] == account[:2]
    assert dni.is_valid(clean("54362315K"))
    assert nir.calc_check_digits(clean("295109912611193")) == clean("295109912611193")[13:]


def test_surrogates_lie_in_ranges_for_examples(clean: Clean) -> None:
    assert re.fullmatch(r"\(4\d\d\) 555-01\d\d", clean("(415) 867-5309"))
    assert re.fullmatch(r"\+33 6 55 50 \d\d \d\d", clean("+33 6 12 34 56 78"))
    assert clean("078-05-1120").startswith("666-")
    assert ipaddress.ip_address(clean("81.2.69.142")) in ipaddress.ip_network("198.18.0.0/15")
    assert ipaddress.ip_address(clean("2a02:8070::1f")) in ipaddress.ip_network("2001:db8::/32")


def test_only_the_value_changes(clean: Clean) -> None:
    new = clean("a  (+1 415-867-5309x12),\tb\r\n ana@acme.io\u200b!")
    assert re.fullmatch("a  \\(\\+1 4\\d\\d-555-01\\d\\dx12\\),\tb\r\n \\S+@\\S+\u200b!", new)


def test_two_values_next_to_each_other_are_two(talk: Callable[..., object]) -> None:
    done = talk("078-05-1120 415-867-5309 4111111111111111 12/27 123")
    assert done.counts == {"national_id:us_ssn": 1, "phone": 1, "card": 1}  # type: ignore[attr-defined]


def test_many_values_of_a_conversation_rarely_share_a_surrogate(clean: Clean) -> None:
    phones = {clean(f"+1 415 867 {n:04}") for n in range(200)}
    mails = {clean(f"ana{n}@acme.io") for n in range(200)}
    addresses = {clean(f"81.2.{n}.142") for n in range(200)}
    assert len(mails) >= 199 and len(addresses) >= 198 and len(phones) >= 195
