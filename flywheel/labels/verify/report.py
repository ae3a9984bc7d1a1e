"""What a run of the verifiers and the judge came to. No log text: counts, names and fixed sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flywheel.labels.verify.words import Word

SAID = ("right", "wrong", "preferred")
"""How verdicts are counted; other words are counted under their own names."""


@dataclass
class Spoken:
    """What one author said in this run.

    Args:
        words: how often, by ``right``, ``wrong``, ``preferred`` (of two answers) or by why nothing was said.
        errors: how often a verifier's code failed, by the exception's type; some may be tried again.
    """

    source: str
    name: str
    words: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def count(self, word: Word) -> None:
        """Take a word in."""
        self.words[counted_as(word.said)] += 1

    def row(self) -> dict[str, Any]:
        """As a table shows it."""
        silent = {why: count for why, count in sorted(self.words.items()) if why not in SAID}
        return {
            "source": self.source,
            "name": self.name,
            "right": self.words["right"],
            "wrong": self.words["wrong"],
            "preferred": self.words["preferred"],
            "no verdict": _told(silent),
            "errors": _told(self.errors),
        }


@dataclass
class VerifyReport:
    """One run.

    Args:
        authors: everybody who may speak, also those who had nothing to look at, by source and name.
        judges: agreement of the judges with people and verifiers, as rows of a table.
        left: whether something had to be left to a later run.
        notes: what went wrong without stopping the run, or why it did nothing.
    """

    authors: dict[str, Spoken] = field(default_factory=dict)
    judges: list[dict[str, Any]] = field(default_factory=list)
    left: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def said(self) -> int:
        """Words of this run, silences included."""
        return sum(own.words.total() for own in self.authors.values())

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        authors = [
            {"source": own.source, "name": own.name, "words": dict(own.words), "errors": dict(own.errors)}
            for own in self.authors.values()
        ]
        return {"authors": authors, "judges": self.judges, "left": self.left, "notes": self.notes}


def counted_as(said: Any) -> str:
    """How a word is counted."""
    if isinstance(said, bool):
        return "right" if said else "wrong"
    return said if isinstance(said, str) else "preferred"


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
