"""What a verifier or a judge said about one answer, as a row of feedback.

Silence is a row as well: it takes the place of what an earlier version said, and keeps the same question from being
asked again. Its value is a word, which no labelling rule reads as good or bad.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flywheel.store.digests import canonical_json, digest

SILENT = "silent"
"""It cannot say."""
ERROR = "error"
"""A verifier's code failed on this answer."""
FLIP = "flip"
"""A judge said one thing in one order and the other in the other."""
UNREADABLE = "unreadable"
"""A judge's reply was not one of the words it was asked for."""
REFUSED = "refused"
"""A judge's endpoint did not take this question."""
WITHDRAWN = "withdrawn"
"""The verifier is no longer in flywheel.yaml."""

STAGE = "#verify"
"""The name of this stage among a task's sources, and the origin of its rows."""


@dataclass(frozen=True)
class Author:
    """Who speaks.

    Args:
        source: ``verifier`` or ``judge``.
        version: digest of all that its verdict depends on.
        epoch: how often it has changed, so that one that returns to an earlier version speaks once more.
    """

    source: str
    name: str
    version: str
    epoch: int

    @property
    def key(self) -> str:
        """Tells authors apart."""
        return f"{self.source}/{self.name}"

    @property
    def prefix(self) -> str:
        """With what the source ids of this version's words begin."""
        return f"{self.name}/{self.epoch}/{self.version[:16]}/"


@dataclass(frozen=True)
class Word:
    """What was said.

    Args:
        target: the interaction.
        said: true or false, a preference, or why nothing is said.
        text: the right answer, if it was named.
        other: of a pair, the answer that this one was compared with.
    """

    target: str
    said: bool | str | dict[str, str]
    text: str = ""
    other: str = ""

    @property
    def subject(self) -> str:
        """What was looked at, once per version of its author."""
        return pair_subject(self.other, self.target) if self.other else self.target


def pair_subject(earlier: str, later: str) -> str:
    """The subject of a word about two answers. The word's target is the later one."""
    return f"{earlier}|{later}"


def feedback_row(author: Author, word: Word, task: str, now: datetime) -> dict[str, Any]:
    """A row of the feedback table. The same word of the same version always has the same id."""
    source_id = author.prefix + word.subject
    return {
        "feedback_id": f"fb-{digest([task, author.source, source_id])[:32]}",
        "task": task,
        "target_kind": "interaction",
        "target_id": word.target,
        "kind": "preference" if word.other else "outcome",
        "value": canonical_json(word.said).decode(),
        "text": word.text,
        "source": author.source,
        "author_key": author.name,
        "ts": now,
        "ingested_at": now,
        "supersedes": "",
        "origin": STAGE,
        "source_offset": 0,
        "source_id": source_id,
    }
