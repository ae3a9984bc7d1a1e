"""What each author's word is worth: whether it agrees with reviewers and verifiers, and whether it can be true at all.

A user's share of agreement is smoothed with eight agreements in ten, which is where everybody begins. A word is worth
the log-odds of that share against those at the beginning, as in a naive Bayes vote; never more than in full, so that
agreeing on purpose buys nothing, and never against what it says. A judge begins with nothing to show for itself; its
weight is the log-odds of its agreement with people, once enough answers have been judged by both.

Most users are never compared with a reviewer. But the audit sample tells how often the model is wrong, for everybody.
A user who calls far more of the answers they got wrong than that can explain (one-sided binomial test) is not
believed, whatever the reason. Who speaks about what others asked, as agents do, is not tested so: they may be shown
the wrong ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flywheel.labels.evidence import Author, Evidence

_AGREED, _OPPOSED = 8, 2
LEAST = 0.2
"""What the word of somebody is worth who is not believed."""

_FULL, _HALF = 1.0, 0.5
_BEST_JUDGE, _JUDGE_STEP = 1.5, 0.25
JUDGED_BY_BOTH = 20
"""Answers on which a judge can be compared with people before its agreement is its weight."""

AUDITED = 30
"""Audited answers that somebody trusted has judged before they tell how often the model is wrong."""

IMPLAUSIBLE = 0.02
"""A user is not believed when so many answers being wrong is less probable than this."""


@dataclass(frozen=True)
class Said:
    """What was said about one answer.

    Args:
        user_key: who had asked; "" when nobody knows.
        audit: whether the answer is in the audit sample.
    """

    evidence: Sequence[Evidence]
    user_key: str = ""
    audit: bool = False


def reliability(said: Sequence[Said], asked: Mapping[str, int]) -> dict[Author, float]:
    """What authors' words are worth, of all who could be compared or were tested; others count in full.

    In full, half or a fifth: a label whose weight changes gets a new version, and one more comparison must not do that
    to all labels of its author.

    Args:
        asked: how many answers each user got, by key.
    """
    agreed: Counter[Author] = Counter()
    opposed: Counter[Author] = Counter()
    for one in said:
        if (truth := _truth(one.evidence)) is None:
            continue
        for item in one.evidence:
            if item.author[0] in ("user", "judge") and item.author[1]:
                (agreed if _agrees(item, truth) else opposed)[item.author] += 1
    worth = {author: _worth(author, agreed[author], opposed[author]) for author in agreed.keys() | opposed.keys()}
    return worth | dict.fromkeys(_implausible(said, asked), LEAST)


def _implausible(said: Sequence[Said], asked: Mapping[str, int]) -> list[Author]:
    """Users who call more of their answers wrong than the model's rate of errors can explain."""
    from scipy.special import bdtrc

    judged = [truth.good for one in said if one.audit and (truth := _truth(one.evidence)) is not None]
    if len(judged) < AUDITED:
        return []
    errors = (judged.count(False) + 1) / (len(judged) + 2)
    denied: Counter[Author] = Counter()
    for one in said:
        denied.update({item.author for item in one.evidence if _denies(item, one.user_key)})
    return [
        author
        for author, count in denied.items()
        if (answers := asked.get(author[1], 0)) >= count and bdtrc(count - 1, answers, errors) < IMPLAUSIBLE
    ]


def _denies(item: Evidence, user_key: str) -> bool:
    """Whether a user who asked says that the answer is wrong."""
    return not item.good and item.source != "implicit" and item.author == ("user", user_key) and bool(user_key)


def _truth(said: Sequence[Evidence]) -> Evidence | None:
    """What the strongest of verifiers and reviewers say, if they agree."""
    for source in ("verifier", "reviewer"):
        own = [item for item in said if item.source == source]
        if own:
            alike = len({(item.good, item.text) for item in own if item.text} or {(item.good, "") for item in own}) == 1
            same = len({item.good for item in own}) == 1
            return next((item for item in own if item.text), own[0]) if alike and same else None
    return None


def _agrees(item: Evidence, truth: Evidence) -> bool:
    if item.text and truth.text:
        return item.text == truth.text
    return item.good == truth.good


def _worth(author: Author, agreed: int, opposed: int) -> float:
    total = agreed + opposed
    if author[0] == "judge":
        if total < JUDGED_BY_BOTH:
            return 1.0
        weight = max(0.0, min(_BEST_JUDGE, math.log((agreed + 1) / (opposed + 1))))
        return round(weight / _JUDGE_STEP) * _JUDGE_STEP
    worth = math.log((agreed + _AGREED) / (opposed + _OPPOSED)) / math.log(_AGREED / _OPPOSED)
    # The first contradiction costs nothing yet, the second half, the third most of it.
    return _FULL if worth >= 0.7 else _HALF if worth >= 0.35 else LEAST
