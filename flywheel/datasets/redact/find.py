"""Everything personal or secret in a text. Cheap looks decide which patterns are worth running."""

from __future__ import annotations

from functools import lru_cache

from flywheel.datasets.redact import national, payment, phones
from flywheel.datasets.redact.crypto import find_addresses
from flywheel.datasets.redact.internet import find_emails, find_ipv4, find_ipv6
from flywheel.datasets.redact.national_letters import find_lettered_ids
from flywheel.datasets.redact.numbers import Rules, by_length, find_numbers
from flywheel.datasets.redact.payment import find_ibans
from flywheel.datasets.redact.secrets import find_secrets
from flywheel.datasets.redact.spans import FAMILIES, Span

LEAST_DIGITS = 6
"""No number of any kind has fewer: six are in a British NINO."""

LEAST_ADDRESS = 25
"""Nor has an address of a crypto currency fewer letters and digits."""

_RULES = [*national.RULES, *payment.RULES, *phones.RULES]


def find(text: str, families: frozenset[str] = frozenset(FAMILIES)) -> list[Span]:
    """Spans of the families, sure or not, in no order; they may overlap. Names are not among them: see ``names``."""
    digits = sum(map(text.count, "0123456789"))
    found: list[Span] = []
    longest_word = max(map(len, text.split()), default=0)
    if "secret" in families:
        found += find_secrets(text, longest_word)
    if "email" in families and "@" in text:
        found += find_emails(text)
    if "ip" in families and digits:
        if digits >= 4 and text.count(".") >= 3:
            found += find_ipv4(text)
        if text.count(":") >= 2:
            found += find_ipv6(text)
    if "crypto" in families and longest_word >= LEAST_ADDRESS:
        found += find_addresses(text)
    if digits < LEAST_DIGITS:
        return found
    if "iban" in families:
        found += find_ibans(text)
    if "national_id" in families:
        found += find_lettered_ids(text)
    found += find_numbers(text, _rules(families), [span for span in found if span.sure])
    return found


@lru_cache
def _rules(families: frozenset[str]) -> Rules:
    return by_length([rule for rule in _RULES if rule.kind.family in families])
