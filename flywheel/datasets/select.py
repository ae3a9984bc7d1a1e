"""Which of the labelled rows become examples: exact duplicates, contradictions, and the model's own answers.

Each step returns what stays and counts what it dropped, by reason.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from flywheel.datasets.prompts import target_text
from flywheel.datasets.rows import KTO, SFT, Row
from flywheel.store.digests import digest

Dropped = Counter[str]


def settle(rows: Iterable[Row]) -> tuple[list[Row], Dropped]:
    """One ``sft`` row per prompt, one ``kto`` row per answer and one pair per two answers, as most of the users' weight
    has it; and nothing that denies what the ``sft`` row of its prompt teaches.

    A voter's newest word counts, once, with the weight of its label. Equal weight on both sides teaches nothing.
    Reasons: ``duplicate`` (says the same as a row that stayed), ``contradiction`` (the outvoted, and what denies the
    right answer), ``contradiction_tie``.
    """
    questions: dict[tuple[str, str], list[tuple[str, Row]]] = defaultdict(list)
    for row in rows:
        question, vote = _vote(row)
        questions[row.kind, question].append((vote, row))
    kept: list[Row] = []
    dropped: Dropped = Counter()
    right: dict[str, str] = {}
    for (kind, _), votes in sorted(questions.items(), key=lambda entry: (entry[0][0] != SFT, entry[0])):
        winner = _winner(votes)
        if winner is None:
            dropped["contradiction_tie"] += len(votes)
            continue
        agreeing = sorted((row for vote, row in votes if vote == winner), key=lambda row: row.preference)
        dropped["contradiction"] += len(votes) - len(agreeing)
        best = agreeing[0]
        if kind == SFT:
            right[best.key] = best.target
        elif _denies(best, right.get(best.key)):
            dropped["contradiction"] += len(agreeing)
            continue
        kept.append(best)
        dropped["duplicate"] += len(agreeing) - 1
    return kept, +dropped


def cap_self_generated(rows: Iterable[Row], share: float) -> tuple[list[Row], Dropped]:
    """At most ``share`` of the ``sft`` rows that stay may have a target that the model wrote itself.

    Rows of other kinds stay: they are about the model's own answers by nature.
    """
    ordered = sorted(rows, key=lambda row: row.preference)
    others = [row for row in ordered if row.kind != SFT]
    human = [row for row in ordered if row.kind == SFT and not row.self_generated]
    own = [row for row in ordered if row.kind == SFT and row.self_generated]
    allowed = own[: own_rows_allowed(len(human), share)] if share < 1 else own
    kept = sorted([*human, *allowed, *others], key=lambda row: row.example_id)
    return kept, +Counter({"self_generated_cap": len(own) - len(allowed)})


def own_rows_allowed(human: int, share: float) -> int:
    """The largest s with s <= share * (s + human), for share < 1."""
    allowed = math.floor(share * human / (1 - share)) + 1  # one above, in case the division rounded down
    while allowed > share * (allowed + human):
        allowed -= 1
    return allowed


def _vote(row: Row) -> tuple[str, str]:
    """What a row decides, and how: which answer to a prompt, which of two answers, or whether an answer is good."""
    if row.kind == SFT:
        return row.key, row.target
    if row.kind == KTO:
        return digest([row.key, row.target]), str(row.desirable)
    return digest([row.key, sorted([row.target, _rejected(row)])]), row.target


def _denies(row: Row, right: str | None) -> bool:
    """Whether a row says that the right answer is the worse one, or that another is good."""
    if right is None:
        return False
    return (row.target == right) != row.desirable if row.kind == KTO else _rejected(row) == right


def _rejected(row: Row) -> str:
    return target_text(row.rejected or {})


def _winner(votes: Sequence[tuple[str, Row]]) -> str | None:
    newest: dict[str, tuple[str, Row]] = {}
    for vote, row in sorted(votes, key=lambda own: (-own[1].seq, own[1].preference)):
        newest.setdefault(row.voter, (vote, row))
    weights: dict[str, list[float]] = defaultdict(list)
    for vote, row in newest.values():
        weights[vote].append(row.weight)
    # Summed exactly, whatever order the rows came in: equal weights give equal sums.
    totals = sorted(((math.fsum(own), vote) for vote, own in weights.items()), reverse=True)
    if len(totals) > 1 and totals[0][0] == totals[1][0]:
        return None
    return totals[0][1]
