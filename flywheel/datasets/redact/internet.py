"""Email and IP addresses. Surrogates lie where nobody can be: example.com, .net and .org, and reserved networks."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from flywheel.datasets.redact.context import topics
from flywheel.datasets.redact.draw import Draw
from flywheel.datasets.redact.invented import WORDS, a_name
from flywheel.datasets.redact.spans import Kind, Span

_LETTER = "0-9A-Za-zÀ-ɏ"
_ADDRESS = re.compile(
    rf"(?<![{_LETTER}_.%+-])[{_LETTER}_.%+'-]{{1,64}}@[{_LETTER}-]+(?:\.[{_LETTER}-]+)*\.[A-Za-zÀ-ɏ]{{2,24}}(?![{_LETTER}_-])"
)
_FILES = frozenset(("png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "js", "ts", "css", "map", "json", "html", "py"))
"""What a picture at twice its size, `icon@2x.png`, ends in."""
_EXAMPLE = re.compile(r"[@.](?:example\.(?:com|net|org)|example|test|invalid|localhost)\Z")

_IPV4 = re.compile(
    r"(?<![0-9A-Za-z_.-])(?<![=<>~^!]=)(?<![~^@#])(?<![A-Za-z]/)"
    r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9A-Za-z_])(?!\.[0-9A-Za-z])(?!-[A-Za-z])"
)
_IPV6 = re.compile(
    r"(?<![0-9A-Za-z_:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:[0-9]{1,3}\.){3}[0-9]{1,3})?(?![0-9A-Za-z_:])"
)
_LONG_GROUP = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{4}(?![0-9A-Fa-f])")
_RESERVED = ("192.0.2.", "198.51.100.", "203.0.113.", "198.18.", "198.19.", "2001:db8:")
"""How addresses begin that are for documentation (RFC 5737, 3849) or benchmarks (RFC 2544), never for a host."""
_BENCHMARKS = int(ipaddress.IPv4Address("198.18.0.0"))


def find_emails(text: str) -> Iterator[Span]:
    """Addresses with a domain that could be on the internet."""
    for match in _ADDRESS.finditer(text):
        start = match.end() - len(match[0].lstrip("'.-"))
        local, _, domain = text[start : match.end()].partition("@")
        git = local == "git" and text[match.end() : match.end() + 1] in (":", "/")
        if local.strip("'") and not git and domain.rpartition(".")[2].lower() not in _FILES:
            yield Span(start, match.end(), EMAIL, f"{local}@{domain}".lower())


def find_ipv4(text: str) -> Iterator[Span]:
    """Dotted quads, but none that a sign shows to be a version: ``==1.2.3.4``, ``v1.2.3.4``, ``Chrome/1.2.3.4``.

    Where a word says version, or all four numbers have one digit and no word says address, it is not sure. Addresses
    that mean a machine to itself or no machine at all (127.0.0.1, 0.0.0.0, 255.255.255.0) identify nobody.
    """
    for match in _IPV4.finditer(text):
        parts = match[0].split(".")
        if any(int(part) > 255 or (part[0] == "0" and len(part) > 1) for part in parts):
            continue
        if parts[0] not in ("0", "127", "255"):
            around = topics(text, match.start(), match.end())
            small = all(len(part) == 1 for part in parts) and "ip" not in around
            yield Span(match.start(), match.end(), IP, match[0], not small and "version" not in around)


def find_ipv6(text: str) -> Iterator[Span]:
    """Addresses with at least one group of four digits: times and `a::b` in code have none."""
    for match in _IPV6.finditer(text):
        if _LONG_GROUP.search(match[0]):
            try:
                value = ipaddress.IPv6Address(match[0])
            except ValueError:
                continue
            yield Span(match.start(), match.end(), IP, value.compressed)


def _email(value: str, shown: str, draw: Draw) -> str:
    """Two names of nobody at a company that is none: as varied as addresses are, so that copying is learned."""
    local = f"{a_name(draw)}{draw.pick(('.', '_', '', '-'))}{a_name(draw)}{draw.pick(('', draw.digits(2)))}"
    new = f"{local}@{draw.pick(WORDS)}.example.{draw.pick(('com', 'net', 'org'))}".lower()
    return new.upper() if shown.isupper() else new


def _ip(value: str, shown: str, draw: Draw) -> str:
    if ":" not in value:
        return str(ipaddress.IPv4Address(_BENCHMARKS + draw.below(2**17)))
    new = "2001:db8:" + ":".join(f"{draw.below(2**16 - 4096) + 4096:x}" for _ in range(6))
    return new.upper() if shown.isupper() else new


EMAIL = Kind("email", _email, lambda value: _EXAMPLE.search(value) is not None)
IP = Kind("ip", _ip, lambda value: value.startswith(_RESERVED))
