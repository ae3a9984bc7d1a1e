"""Redaction of a dataset's rows, the last step before they are stored: what rows are compared by are raw texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flywheel.config_redact import RedactPolicy
from flywheel.datasets.prompts import Message
from flywheel.datasets.redact.conversation import Redacted, redact
from flywheel.datasets.rows import Row, prompt_mac, rewritten

Label = Mapping[str, Any]


@dataclass(frozen=True)
class RowRedaction:
    """How the rows of a task are redacted; a row without a conversation is one of its own.

    Attributes:
        key: the deployment's secret.
        prompt: the task's system prompt; what it tells everybody stays.
    """

    policy: RedactPolicy
    key: bytes
    prompt: str | None

    def rows(self, rows: Iterable[Row]) -> tuple[list[Row], Counter[str]]:
        """The rows without personal data and secrets, and how many spans of each kind were in them.

        Rows of earlier datasets that have been redacted stay as they are.
        """
        done: list[Row] = []
        counts: Counter[str] = Counter()
        for row in rows:
            worse = [row.rejected] if row.rejected else []
            found = self._redact(row, worse)
            row = replace(row, prompt_mac=row.prompt_mac or prompt_mac(self.key, row.text))
            if found.counts:
                rejected = found.messages.pop() if worse else None
                row = rewritten(row, found.messages, found.tools or (), rejected)
            done.append(row)
            counts += found.counts
        return done, counts

    def labels(self, labels: Mapping[str, Label], rows: Iterable[Row]) -> dict[str, Label]:
        """Labels by interaction, their answers redacted as those of stored rows are: only so do the two compare."""
        found = dict(labels)
        for row in rows:
            label = labels.get(row.interaction_id)
            if label and label["chosen"] and label["chosen"] != row.messages[-1].get("content"):
                said = self._redact(row, [{"role": "assistant", "content": label["chosen"]}])
                found[row.interaction_id] = {**label, "chosen": said.messages[-1]["content"]}
        return found

    def _redact(self, row: Row, more: list[Message]) -> Redacted:
        conversation = row.conversation_id or row.interaction_id or row.example_id
        said = [*row.messages, *more]
        return redact(said, row.tools, key=self.key, conversation=conversation, policy=self.policy, public=self.prompt)
