"""Check digits against python-stdnum, which knows the same numbers from their issuers' documents."""

from __future__ import annotations

import pytest
import stdnum.iso7064.mod_11_10
import stdnum.luhn
import stdnum.verhoeff
from hypothesis import given, settings
from hypothesis import strategies as st
from stdnum.br import cpf
from stdnum.de import idnr
from stdnum.es import dni, nie
from stdnum.fr import nir
from stdnum.iban import is_valid as is_iban
from stdnum.in_ import aadhaar
from stdnum.it import codicefiscale
from stdnum.nl import bsn
from stdnum.pl import pesel
from stdnum.se import personnummer

from flywheel.datasets.redact import checksums as ours
from flywheel.datasets.redact.draw import Draw
from flywheel.datasets.redact.national import IDS

digits = st.text("0123456789", min_size=5, max_size=18)


def of_length(count: int) -> st.SearchStrategy[str]:
    return st.text("0123456789", min_size=count, max_size=count)


@given(digits)
def test_luhn_verhoeff_and_mod_11_10_are_those_of_the_standards(number: str) -> None:
    for check, oracle in (
        (ours.luhn, stdnum.luhn.is_valid),
        (ours.verhoeff, stdnum.verhoeff.is_valid),
        (ours.mod_11_10, stdnum.iso7064.mod_11_10.is_valid),
    ):
        completed = ours.complete(number, check)
        assert oracle(completed)
        assert check(number) == oracle(number)


@given(of_length(8))
def test_bsn_is_the_dutch_eleven_test(number: str) -> None:
    assert bsn.is_valid(ours.complete(number, ours.bsn)) or int(number) < 10
    assert ours.bsn(number + "0") == bsn.is_valid(number + "0") or not int(number)


@given(of_length(10))
def test_pesel_has_the_check_digit_of_its_register(number: str) -> None:
    assert ours.complete(number, ours.pesel)[-1] == pesel.calc_check_digit(number)


@given(of_length(9))
def test_cpf_has_its_two_check_digits(number: str) -> None:
    made = ours.cpf_of(number)
    assert ours.cpf(made) == cpf.is_valid(made) == (len(set(made)) > 1)


@given(of_length(13))
def test_nir_has_its_key(number: str) -> None:
    assert ours.nir_key(number) == nir.calc_check_digits(number)
    corsican = f"{number[:5]}2A{number[7:]}"
    assert ours.nir_key(corsican) == nir.calc_check_digits(corsican)


@given(of_length(8))
def test_dni_and_nie_have_their_letter(number: str) -> None:
    assert ours.dni_letter(number) == dni.calc_check_digit(number)
    assert ours.dni_letter("2" + number[1:]) == nie.calc_check_digit("Z" + number[1:])


@given(st.from_regex(r"[A-Z]{6}[0-9]{2}[A-EHLMPRST][0-9]{2}[A-Z][0-9]{3}", fullmatch=True))
def test_codice_fiscale_has_its_letter(body: str) -> None:
    assert ours.fiscale_letter(body) == codicefiscale.calc_check_digit(body)


@given(of_length(18))
def test_iban_has_the_check_digits_of_its_country(number: str) -> None:
    made = ours.iban("DE", number)
    assert ours.mod_97(made)
    assert is_iban(made)


REGISTERS = {
    "nl_bsn": (ours.bsn, bsn.is_valid),
    "pl_pesel": (ours.pesel, pesel.is_valid),
    "de_steuer_id": (ours.mod_11_10, idnr.is_valid),
    "in_aadhaar": (ours.verhoeff, aadhaar.is_valid),
    "se_personnummer": (ours.luhn, lambda number: personnummer.is_valid(f"{number[:6]}-{number[6:]}")),
}


@pytest.mark.parametrize("name", REGISTERS)
def test_what_the_register_could_give_is_what_holds(name: str) -> None:
    (known,) = (one for one in IDS if one.name == name)
    check, oracle = REGISTERS[name]

    @settings(max_examples=300)
    @given(of_length(known.digits - 1))
    def agrees(body: str) -> None:
        number = ours.complete(body, check)
        if oracle(number):
            assert known.holds(number)
        assert not oracle(known.invent(number, Draw(number.encode() * 3))) or name in ("nl_bsn",)

    agrees()
