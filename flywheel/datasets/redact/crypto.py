"""Addresses of crypto currencies, told by their check digits; a surrogate has the same form, and a mark inside.

Base58Check (Bitcoin, Litecoin, Dogecoin, Dash, Tron, XRP), Bech32 and Bech32m (BIP 173, 350), Ethereum, and Solana
where words say so: its addresses have no check digits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence

from flywheel.datasets.redact.context import topics
from flywheel.datasets.redact.draw import Draw
from flywheel.datasets.redact.spans import Kind, Span

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_RIPPLE = "rpshnaf39wBUDNEGHJKLM4PQRST7VWXYZ2bcdeCg65jkm8oFqi1tuvAxyz"
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"

_MARK = bytes.fromhex("fade0ff0")
"""How the hash in a surrogate begins, and how it does in Bech32's groups of five bits."""
_MARK_5 = "fadefa"

_CHECKED = re.compile(r"(?<![0-9A-Za-z])[139ADLMTXr][1-9A-HJ-NP-Za-km-z]{24,34}(?![0-9A-Za-z])")
_SEGWIT = re.compile(r"(?<![0-9A-Za-z])(?i:(?:bc|tb|ltc)1[02-9ac-hj-np-z]{14,87})(?![0-9A-Za-z])")
_ETHEREUM = re.compile(r"(?<![0-9A-Za-z])0[xX][0-9A-Fa-f]{40}(?![0-9A-Za-z])")
_SOLANA = re.compile(r"(?<![0-9A-Za-z])[1-9A-HJ-NP-Za-km-z]{43,44}(?![0-9A-Za-z])")

_VERSIONS = frozenset((0, 5, 22, 30, 48, 50, 65, 76))
"""First bytes of the networks named above."""


def find_addresses(text: str) -> Iterator[Span]:
    """Addresses in whole words; each value is the address, in lower case where case says nothing."""
    for match in _ETHEREUM.finditer(text):
        yield Span(match.start(), match.end(), CRYPTO, match[0].lower())
    for match in _CHECKED.finditer(text):
        if _checked(match[0]):
            yield Span(match.start(), match.end(), CRYPTO, match[0])
    for match in _SEGWIT.finditer(text):
        if _segwit(match[0].lower()):
            yield Span(match.start(), match.end(), CRYPTO, match[0].lower())
    for match in _SOLANA.finditer(text):
        if _from_base58(match[0], 32):
            sure = "solana" in topics(text, match.start(), match.end())
            yield Span(match.start(), match.end(), CRYPTO, match[0], sure)


def _surrogate(value: str, shown: str, draw: Draw) -> str:
    if value.startswith("0x"):
        new = "0x" + _MARK.hex() + draw.hex(32)
    elif raw := _checked(value):
        body = raw[:1] + _MARK + bytes.fromhex(draw.hex(32))
        new = _to_base58(body + _check(body))
        return new.translate(str.maketrans(_BASE58, _RIPPLE)) if value[0] == "r" else new
    elif separator := value.find("1") if _segwit(value) else 0:
        new = _segwit_address(value[:separator], value[separator + 1], len(value) - separator - 8, draw)
    else:
        return _to_base58(_MARK + bytes.fromhex(draw.hex(56)))
    return new.upper() if shown.isupper() else new


def _invented(value: str) -> bool:
    if value.startswith("0x"):
        return value.startswith("0x" + _MARK.hex())
    if raw := _checked(value):
        return raw[1:].startswith(_MARK)
    if _segwit(value):
        return value.partition("1")[2][1:].startswith(_MARK_5)
    return _from_base58(value, 32).startswith(_MARK)


def _checked(address: str) -> bytes:
    """Version, hash and check bytes of a Base58Check address, or nothing."""
    if address[0] == "r":
        address = address.translate(str.maketrans(_RIPPLE, _BASE58))
    raw = _from_base58(address, 25)
    return raw if raw and raw[0] in _VERSIONS and raw[21:] == _check(raw[:21]) else b""


def _check(body: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(body).digest()).digest()[:4]


def _from_base58(text: str, size: int) -> bytes:
    """The bytes that a text writes, if they are ``size`` bytes."""
    number = 0
    for char in text:
        place = _BASE58.find(char)
        if place < 0:
            return b""
        number = number * 58 + place
    raw = number.to_bytes(size, "big") if number < 256**size else b""
    return raw if raw and _to_base58(raw) == text else b""


def _to_base58(raw: bytes) -> str:
    number, text = int.from_bytes(raw, "big"), ""
    while number:
        number, place = divmod(number, 58)
        text = _BASE58[place] + text
    return "1" * (len(raw) - len(raw.lstrip(b"\0"))) + text


def _segwit(address: str) -> bool:
    """Whether the check characters of an address in lower case hold for its witness version."""
    prefix, _, data = address.partition("1")
    groups = [_BECH32.find(char) for char in data]
    return len(groups) > 7 and min(groups) >= 0 and _polymod([*_expand(prefix), *groups]) == _constant(groups[0])


def _segwit_address(prefix: str, version: str, length: int, draw: Draw) -> str:
    """An address whose program has ``length`` groups of five bits; 52 of them hold 32 bytes and four bits of zero."""
    free = length - len(_MARK_5)
    program = [_BECH32.index(char) for char in version + _MARK_5]
    program += [draw.below(32) for _ in range(free - 1)]
    program.append({0: draw.below(32), 4: 16 * draw.below(2)}.get(length % 8, 0))
    rest = _polymod([*_expand(prefix), *program, *[0] * 6]) ^ _constant(program[0])
    program += [rest >> 5 * (5 - place) & 31 for place in range(6)]
    return f"{prefix}1{''.join(_BECH32[group] for group in program)}"


def _constant(version: int) -> int:
    return 0x2BC830A3 if version else 1


def _expand(prefix: str) -> list[int]:
    return [*(ord(char) >> 5 for char in prefix), 0, *(ord(char) & 31 for char in prefix)]


def _polymod(groups: Sequence[int]) -> int:
    """The checksum of BIP 173."""
    check = 1
    for group in groups:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ group
        for bit, term in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            check ^= term if top >> bit & 1 else 0
    return check


CRYPTO = Kind("crypto", _surrogate, _invented)
