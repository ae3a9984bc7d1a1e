"""Whose data goes, and how a record, row or file is recognised as theirs: by keyed hashes only."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from flywheel.store.erased import Pseudonyms, json_strings
from flywheel.store.home import Home


@dataclass
class Scope:
    """One person's data in a home.

    Args:
        user_key: the keyed hash of the person's id.
        gone: by task, keyed hashes of the interactions, conversations and feedback that go. Of a conversation that the
            person took part in all turns go, since each repeats the earlier ones; feedback about any of it goes too.
        touched: by task, keyed hashes of other interactions that the person gave feedback on. They stay; labels,
            examples and suite items made of that feedback go.
    """

    user_key: str
    pseudonyms: Pseudonyms
    gone: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    touched: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, home: Home, user: str) -> Scope:
        """Nothing but the person, so far."""
        pseudonyms = Pseudonyms(home)
        return cls(pseudonyms.user(user), pseudonyms)

    def is_user(self, user: str | None) -> bool:
        """Whether a caller's id, as logs have it, is the person's."""
        return self.pseudonyms.user(user) == self.user_key

    def has(self, task: str, *names: str | None) -> bool:
        """Whether one of these ids goes."""
        known = self.gone.get(task, set())
        return bool(known) and any(name and self.pseudonyms.name(task, name) in known for name in names)

    def has_touched(self, task: str, name: str | None) -> bool:
        """Whether the person gave feedback on this interaction of somebody else."""
        known = self.touched.get(task, set())
        return bool(known and name) and self.pseudonyms.name(task, name or "") in known

    def add(self, task: str, *names: str) -> None:
        """Let these ids go."""
        self.gone[task].update(self.pseudonyms.name(task, name) for name in names if name)

    def touch(self, task: str, *names: str) -> None:
        """Note interactions of others that the person gave feedback on."""
        self.touched[task].update(self.pseudonyms.name(task, name) for name in names if name)

    def mentioned(self, task: str, raw: str) -> bool:
        """Whether a text in which JSON was meant has the person's id, or an id that goes, as a string."""
        return any(self.is_user(text) or self.has(task, text) for text in json_strings(raw))

    def takes_call(self, task: str, row: dict[str, Any]) -> bool:
        """Whether a row with the columns of an interaction goes; examples of datasets have these too."""
        return row["user_key"] == self.user_key or self.has(task, row["interaction_id"], row["conversation_id"])

    def takes_feedback(self, task: str, row: dict[str, Any]) -> bool:
        """Whether a row of feedback goes, joined or waiting."""
        target = row["target_id"] if row["target_kind"] != "metadata" else None
        return row["author_key"] == self.user_key or self.has(task, row["feedback_id"], target)
