"""What is found in a text: spans, each with its kind and the value that it writes, and which of them hold."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from flywheel.datasets.redact.draw import Draw


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of personal data or secret.

    Attributes:
        name: its family, or ``family:member`` such as ``national_id:us_ssn``; what is counted.
        surrogate: of a value, the text that wrote it and a draw: what is written instead.
        invented: whether a value is a surrogate, which is left as it is.
    """

    name: str
    surrogate: Callable[[str, str, Draw], str]
    invented: Callable[[str], bool]

    @property
    def family(self) -> str:
        """What the configuration switches on and off."""
        return self.name.partition(":")[0]


class Span(NamedTuple):
    """``text[start:end]`` writes ``value``, in the one spelling that all ways of writing it share.

    One that is not ``sure`` has the form of its kind, and so have other things: it counts where the same value is sure
    elsewhere in the conversation.
    """

    start: int
    end: int
    kind: Kind
    value: str
    sure: bool = True


FAMILIES = ("secret", "iban", "national_id", "card", "crypto", "ip", "email", "phone", "name")
"""All families, the most specific first: of two spans with the same ends, the earlier family's holds."""

_RANK = {family: rank for rank, family in enumerate(FAMILIES)}


def settle(spans: Iterable[Span]) -> list[Span]:
    """The spans that hold, from left to right: where some overlap, a secret, then the longest, then the most specific.

    A password in an address comes before what would be an email address: ``user:password@host.io``.
    """
    kept: list[Span] = []
    for span in sorted(spans, key=_precedence):
        place = bisect(kept, span.start, key=_start)
        if (not place or kept[place - 1].end <= span.start) and (place == len(kept) or span.end <= kept[place].start):
            kept.insert(place, span)
    return kept


def _start(span: Span) -> int:
    return span.start


def _precedence(span: Span) -> tuple[bool, int, int, int]:
    return (span.kind.family != "secret", span.start - span.end, _RANK[span.kind.family], span.start)


__all__ = ["FAMILIES", "Kind", "Span", "settle"]
