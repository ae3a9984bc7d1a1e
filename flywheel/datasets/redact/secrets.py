"""Secrets of known vendors, and the placeholders that take their place: nobody should learn to write a key."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flywheel.datasets.redact.secret_patterns import PATTERNS
from flywheel.datasets.redact.spans import Kind, Span


def _kind(vendor: str) -> Kind:
    return Kind(f"secret:{vendor}", lambda value, shown, draw: f"[SECRET:{vendor}]", lambda value: False)


_KINDS = {vendor: _kind(vendor) for vendor, _, _ in PATTERNS}
VENDORS = frozenset(_KINDS)

_FINDERS = [(re.compile(rf"(?<![0-9A-Za-z]){pattern}"), _KINDS[vendor]) for vendor, _, pattern in PATTERNS]
_ANCHORS: dict[str, list[int]] = {}
"""Which finders are worth a try where a text has an anchor."""
for _place, (_, _anchors, _) in enumerate(PATTERNS):
    for _anchor in _anchors:
        _ANCHORS.setdefault(_anchor, []).append(_place)

SHORTEST, LONG = 15, 50
"""No secret stands in a text without a word as long as this, or the name of a private key; some are this long."""


def find_secrets(text: str, longest_word: int) -> Iterator[Span]:
    """All secrets, those of the more specific patterns first; where a pattern has a group, the group alone is one."""
    if longest_word < SHORTEST and "PRIVATE KEY" not in text:
        return
    places = {place for anchor in _ANCHORS if anchor in text for place in _ANCHORS[anchor]}
    if longest_word < LONG:
        places.difference_update(_ANCHORS[""])
    for place in sorted(places):
        pattern, kind = _FINDERS[place]
        for match in pattern.finditer(text):
            start, end = match.span(pattern.groups)
            yield Span(start, end, kind, match[pattern.groups])
