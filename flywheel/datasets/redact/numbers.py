"""Numbers of digits alone: groups of digits with what stands between them, offered to the kinds of their length."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from flywheel.datasets.redact.context import topics
from flywheel.datasets.redact.spans import Kind, Span

MOST_DIGITS = 19

_GAP = r"[ \xa0\u202f.\-/()–‑]{1,3}"
_LETTER = "0-9A-Za-z_À-ɏ"
_RUN = re.compile(
    rf"(?<![{_LETTER}])(?<![{_LETTER}]-)[+(]{{0,2}}[0-9]+(?:{_GAP}[0-9]+)*"
    rf"(?:(?=[xX][0-9])|(?![{_LETTER}])(?!-[{_LETTER}])(?!,[0-9]{{3}}(?![0-9])))"
)
_GROUP = re.compile(r"[0-9]+")
_CUTS = frozenset(" \xa0\u202f/")
"""Where one number may end and the next begin. A dot or a hyphen holds a number together."""


@dataclass(slots=True, eq=False)
class Number:
    """Some neighbouring groups of digits in a text.

    Attributes:
        shape: lengths of the groups and what stands between them, such as ``3-2-4``.
        alone: no more groups stand before or behind it.
        plus: a ``+`` stands before it.
    """

    text: str
    start: int
    end: int
    digits: str
    shape: str
    alone: bool
    plus: bool
    _topics: frozenset[str] | None = field(default=None, init=False)

    @property
    def topics(self) -> frozenset[str]:
        """What the words around it say that it is."""
        if self._topics is None:
            self._topics = topics(self.text, self.start, self.end)
        return self._topics


@dataclass(frozen=True, eq=False)
class Rule:
    """How numbers of a kind are told.

    Attributes:
        lengths: how many digits they have.
        read: the value of a number that has the form, check digits included, or that is a surrogate, and whether form
            and words around make it one of the kind for sure; or ``None``.
    """

    kind: Kind
    lengths: Collection[int]
    read: Callable[[Number], tuple[str, bool] | None]


Rules = dict[int, list[Rule]]
"""Rules by number of digits."""


def by_length(rules: list[Rule]) -> Rules:
    """The rules that a number of each length is offered to."""
    return {count: found for count in range(1, MOST_DIGITS + 1) if (found := [r for r in rules if count in r.lengths])}


def find_numbers(text: str, rules: Rules, taken: Sequence[Span]) -> Iterator[Span]:
    """What any rule takes for its own, sure or not, among neighbouring groups that do not lie within ``taken``."""
    least = min(rules, default=MOST_DIGITS)
    for run in _RUN.finditer(text):
        start, end = run.span()
        if end - start < least or any(span.start <= start and end <= span.end for span in taken):
            continue
        for number in _numbers(text, start, end, least):
            for rule in rules.get(len(number.digits), ()):
                found = rule.read(number)
                if found:
                    yield Span(number.start, number.end, rule.kind, *found)


def _numbers(text: str, start: int, end: int, least: int) -> Iterator[Number]:
    groups = [group.span() for group in _GROUP.finditer(text, start, end)]
    if len(groups) == 1:
        a, b = groups[0]
        if b - a >= least:
            yield Number(text, start, b, text[a:b], str(b - a), True, "+" in text[start:a])
        return
    gaps = ["", *(text[a[1] : b[0]] for a, b in pairwise(groups))]
    begins = [place for place, gap in enumerate(gaps) if not gap or not _CUTS.isdisjoint(gap)]
    ends = {begin - 1 for begin in begins[1:]} | {len(groups) - 1}
    for first in begins:
        begin = groups[first][0]
        opened = start if first == 0 else begin - gaps[first].endswith("(")
        digits = shape = ""
        for last in range(first, len(groups)):
            a, b = groups[last]
            digits += text[a:b]
            if len(digits) > MOST_DIGITS:
                break
            shape += (gaps[last] if last > first else "") + str(b - a)
            if last in ends and len(digits) >= least:
                alone = first == 0 and last == len(groups) - 1
                yield Number(text, opened, b, digits, shape, alone, "+" in text[opened:begin])
