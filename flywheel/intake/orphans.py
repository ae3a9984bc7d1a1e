"""Feedback that came before its interaction: it waits here and joins when the target arrives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flywheel.intake.records import Json
from flywheel.store.digests import canonical_json

Target = tuple[str, str]
"""``("interaction", id)``, ``("conversation", id)``, ``("either", id)`` from a source that does not say which of them
it is, or ``("metadata", canonical JSON of key and value)``."""


class Waiting:
    """The feedback of one task that waits, found by what it waits for."""

    def __init__(self, rows: Iterable[Json]) -> None:
        self._rows: dict[Target, list[Json]] = {}
        for row in rows:
            self.add(row)

    def __bool__(self) -> bool:
        return bool(self._rows)

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._rows.values())

    def __iter__(self) -> Iterator[Json]:
        return (row for rows in self._rows.values() for row in rows)

    def add(self, row: Json) -> None:
        """Let a feedback row wait."""
        self._rows.setdefault((row["target_kind"], row["target_id"]), []).append(row)

    def take(self, targets: Iterable[Target], interaction_id: str) -> list[Json]:
        """Remove and return the feedback that waits for one of ``targets``, names of an interaction just arrived."""
        found = []
        for kind, name in targets:
            named = ("interaction", interaction_id) if kind == "metadata" else (kind, name)
            for waited in ((kind, name), ("either", name)):
                found += [resolved(row, named) for row in self._rows.pop(waited, [])]
        return found


def resolved(row: Json, target: Target) -> Json:
    """The row about the interaction or conversation that its target was found to be."""
    return row | {"target_kind": target[0], "target_id": target[1]}


def metadata_targets(metadata: Json) -> list[Target]:
    """Every target by which a caller could mean an interaction with this metadata.

    Values match as text, so that 42 finds "42": feedback often comes from another system than the call.
    """
    return [("metadata", metadata_key(key, value)) for key, value in metadata.items() if _scalar(value)]


def metadata_key(key: str, value: Any) -> str:
    """One spelling per key and value."""
    return canonical_json({"key": key, "value": value if isinstance(value, str) else str(value)}).decode()


def _scalar(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
