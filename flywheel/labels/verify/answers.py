"""Answers as verifiers and judges look at them: what was said before, and the answer itself; never who the user is."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.labels.targets import answer_text
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import query

_BATCH = 500
"""Rows that are held as Python objects at a time."""


@dataclass(frozen=True)
class Answer:
    """One answer of the model, as stored.

    Args:
        request: JSON ``{messages, tools, params}``.
        response: JSON ``{message, finish_reason}``.
    """

    interaction_id: str
    request: str
    response: str

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What was said before the answer; a new list each time, so that nobody changes what others see."""
        found: list[dict[str, Any]] = json.loads(self.request)["messages"]
        return found

    @property
    def tools(self) -> list[Any]:
        """The tools that the model could call."""
        return json.loads(self.request).get("tools") or []

    @property
    def message(self) -> dict[str, Any]:
        """The answer as an assistant's message; a new one each time."""
        found: dict[str, Any] = json.loads(self.response)["message"]
        return found

    @property
    def text(self) -> str:
        """The answer's text; "" when it only calls tools."""
        return answer_text(json.loads(self.response))

    @property
    def prompt(self) -> str:
        """The text of the user's last message; "" when there is none."""
        said = [message for message in self.messages if message.get("role") == "user"]
        return answer_text({"message": said[-1]}) if said else ""


def read_answers(
    home: Home, registry: Registry, task: str, ids: Collection[str], *, among: Sequence[str] | None = None
) -> Iterator[Answer]:
    """The named interactions as answers, in order of time and id.

    Args:
        among: paths of the segments to look at; None means all.
    """
    sql = (
        "SELECT interaction_id, request, response FROM rows WHERE interaction_id IN (SELECT unnest($1))"
        " ORDER BY ts, interaction_id"
    )
    found = query(home, registry, "interactions", task, sql, [sorted(ids)], among=among)
    for batch in found.to_batches(max_chunksize=_BATCH):
        for row in batch.to_pylist():
            yield Answer(**row)
