"""One row for a conversation's turns: a turn that a longer one repeats is learned there, not twice.

A request holds the whole history, so the rows of a conversation's turns are prefixes of one another. Where the history
of the longer row has exactly the answer that the shorter one teaches, the shorter goes and its answer is learned in the
longer row. Where it has another (somebody corrected it), both stay: the history shows what was said, not what to say.
Only messages of the assistant are ever learned; results of tools are not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from flywheel.datasets.prompts import target_text
from flywheel.datasets.rows import SFT, Row
from flywheel.store.digests import digest


def merge_turns(rows: Iterable[Row], *, apart: Collection[str] = ()) -> tuple[list[Row], Counter[str]]:
    """The rows with each conversation's repeated turns merged into its longest; reason ``earlier_turn`` for those gone.

    A merged row weighs what its lightest answer does. The order of the rows does not matter.

    Args:
        apart: interactions whose rows stay rows of their own.
    """
    talks: dict[str, list[Row]] = defaultdict(list)
    kept: list[Row] = []
    for row in rows:
        if row.kind == SFT and row.conversation_id and row.interaction_id not in apart:
            talks[row.conversation_id].append(row)
        else:
            kept.append(row)
    total = sum(map(len, talks.values()))
    merged = [row for talk in talks.values() for row in _merge(talk)]
    return [*kept, *merged], +Counter({"earlier_turn": total - len(merged)})


def _merge(talk: list[Row]) -> list[Row]:
    if len(talk) == 1:
        return talk
    whole = {digest([_said(message) for message in row.messages]): row for row in talk}
    gone: set[str] = set()
    merged: list[Row] = []
    for row in sorted(talk, key=lambda row: (-len(row.messages), row.example_id)):
        if row.example_id in gone:
            continue
        learned, weight = set(row.learned), row.weight
        for position, prefix in _prefixes(row):
            earlier = whole.get(prefix)
            if earlier is not None and earlier.tools == row.tools:
                learned |= {position, *earlier.learned}
                weight = min(weight, earlier.weight)
                gone.add(earlier.example_id)
        merged.append(replace(row, learned=tuple(sorted(learned)), weight=weight))
    return merged


def _prefixes(row: Row) -> Iterator[tuple[int, str]]:
    """The places of the history's answers, and a digest of all up to each."""
    said = [_said(message) for message in row.messages[:-1]]
    for position, message in enumerate(row.messages[:-1]):
        if message.get("role") == "assistant":
            yield position, digest(said[: position + 1])


def _said(message: dict[str, Any]) -> list[str]:
    return [str(message.get("role")), target_text(message)]
