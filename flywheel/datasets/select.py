"""Which of the labelled rows become examples: exact duplicates, contradictions, and the model's own answers.

Each step returns what stays and counts what it dropped, by reason.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

from flywheel.datasets.rows import Row

Dropped = Counter[str]


def settle(rows: Iterable[Row]) -> tuple[list[Row], Dropped]:
    """One row per prompt: the target that most of the users' weight speaks for.

    A voter's newest word counts, once, with the weight of its label. Equal weight on two targets teaches nothing, so
    the prompt is dropped. Reasons: ``duplicate`` (same prompt, same target), ``contradiction`` (the outvoted),
    ``contradiction_tie``.
    """
    by_prompt: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_prompt[row.key].append(row)
    kept: list[Row] = []
    dropped: Dropped = Counter()
    for _, asked in sorted(by_prompt.items()):
        winner = _winner(asked)
        if winner is None:
            dropped["contradiction_tie"] += len(asked)
            continue
        agreeing = sorted((row for row in asked if row.target == winner), key=lambda row: row.preference)
        kept.append(agreeing[0])
        dropped["duplicate"] += len(agreeing) - 1
        dropped["contradiction"] += len(asked) - len(agreeing)
    return kept, +dropped


def cap_self_generated(rows: Iterable[Row], share: float) -> tuple[list[Row], Dropped]:
    """At most ``share`` of the rows that stay may have a target that the model wrote itself."""
    ordered = sorted(rows, key=lambda row: row.preference)
    human = [row for row in ordered if not row.self_generated]
    own = [row for row in ordered if row.self_generated]
    allowed = own[: own_rows_allowed(len(human), share)] if share < 1 else own
    kept = sorted([*human, *allowed], key=lambda row: row.example_id)
    return kept, +Counter({"self_generated_cap": len(own) - len(allowed)})


def own_rows_allowed(human: int, share: float) -> int:
    """The largest s with s <= share * (s + human), for share < 1."""
    allowed = math.floor(share * human / (1 - share)) + 1  # one above, in case the division rounded down
    while allowed > share * (allowed + human):
        allowed -= 1
    return allowed


def _winner(asked: list[Row]) -> str | None:
    newest: dict[str, Row] = {}
    for row in sorted(asked, key=lambda row: (-row.seq, row.preference)):
        newest.setdefault(row.voter, row)
    votes: dict[str, list[float]] = defaultdict(list)
    for row in sorted(newest.values(), key=lambda row: row.preference):
        votes[row.target].append(row.weight)
    # Summed heaviest first, whatever order the rows came in: equal weights give equal sums.
    totals = sorted(((sum(weights), target) for target, weights in votes.items()), reverse=True)
    if len(totals) > 1 and totals[0][0] == totals[1][0]:
        return None
    return totals[0][1]
