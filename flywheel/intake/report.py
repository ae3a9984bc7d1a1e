"""What became of the records read: every one ends in exactly one place, and the counts say so."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from flywheel.errors import IntakeError

BLANK = "blank line"
"""The rule by which a line is skipped that holds no record."""


@dataclass
class SourceReport:
    """Counts of one source in one run; ``read = kept + duplicate + quarantined + skipped``.

    Args:
        kept: records stored, the late ones included; feedback that waits for its target is stored too.
        late: kept records over an hour older than the newest that their source had shown before.
        reasons: why records were quarantined or skipped, and what was noticed about kept ones (repairs, times).
        faults: why files could not be read to their end, once for each; ``reasons`` has them too.
    """

    source: str
    read: int = 0
    kept: int = 0
    late: int = 0
    duplicate: int = 0
    quarantined: int = 0
    skipped: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def count(self, outcome: str, *reasons: str) -> None:
        """One more record read, which ended as ``outcome`` (``kept``, ``duplicate``, ``quarantined``, ``skipped``)."""
        self.read += 1
        setattr(self, outcome, getattr(self, outcome) + 1)
        self.note(*reasons)

    def note(self, *reasons: str) -> None:
        """Count reasons without counting a record."""
        for reason in reasons:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def tell(self, faults: list[str]) -> None:
        """Note why files could not be read to their end."""
        self.note(*faults)
        self.faults += faults

    def add(self, other: SourceReport) -> None:
        """Add another report's counts to this one."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.reasons = dict(Counter(self.reasons) + Counter(other.reasons))
        self.faults += other.faults

    def check(self) -> None:
        """Raise IntakeError unless the counts add up."""
        ends = self.kept + self.duplicate + self.quarantined + self.skipped
        if self.read != ends or self.late > self.kept:
            raise IntakeError(
                f"{self.source}: {self.read} records read but {ends} accounted for; this is a bug in intake"
            )

    def parsed_share(self) -> float:
        """Share of the records that could be parsed: all but the quarantined. A blank line is no record here."""
        records = self.read - self.reasons.get(BLANK, 0)
        return 1 - self.quarantined / records if records else 1.0

    def counts(self) -> dict[str, Any]:
        """The counts and reasons by name."""
        return {name: getattr(self, name) for name in COUNTS} | {"reasons": dict(self.reasons)}


COUNTS = tuple(item.name for item in fields(SourceReport) if item.type == "int")


@dataclass(frozen=True)
class IntakeReport:
    """One run over all sources of a task.

    Args:
        sources: a report per source, also of those with nothing new.
        joined: feedback that had waited and found its target in this run.
        waiting: feedback that waits now.
    """

    sources: list[SourceReport]
    joined: int
    waiting: int

    @property
    def total(self) -> SourceReport:
        """The counts and reasons of all sources together."""
        found = SourceReport("all sources")
        for source in self.sources:
            found.add(source)
        return found
