"""What the evidence about one answer comes to: how probably it was good, and what would have been right."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from flywheel.config_labels import LabelPolicy
from flywheel.labels.authors import LEAST
from flywheel.labels.evidence import SAYS, STRONG, Author, Evidence

_DECISIVE = ("verifier", "reviewer", "correction")
_CHECKED = ("verifier", "reviewer")
_EXPLICIT = (*STRONG, "thumb")
_OPPOSITES = {"verifier": "reviewer", "correction": "outcome"}  # strong evidence that is no conflict only if it agrees
# What a target weighs in training that this source names or confirms.
_WEIGHT = {
    "verifier": 1.0,
    "reviewer": 1.0,
    "correction": 1.0,
    "outcome": 0.8,
    "thumb": 0.5,
    "judge": 0.3,
    "implicit": 0.3,
}
_WORDS = {
    "verifier": "the verifier",
    "reviewer": "a reviewer",
    "correction": "the user",
    "outcome": "the task's outcome",
    "thumb": "the user",
    "implicit": "the user's behaviour",
    "judge": "the judge",
}


CONFLICT = "equally strong feedback disagrees"
REFUSAL = "anger at a refusal does not count"
DOUBTED = "whoever says so is not believed"

TRUSTED = 1.0
"""An author whose word is worth less never judges a candidate."""

Reliability = Mapping[Author, float]
"""What an author's word is worth, from 0 to 1; see `authors`. Who is not in it counts in full."""


@dataclass(frozen=True)
class Target:
    """What a label is about.

    Args:
        answer: the text of the model's answer; "" when it said nothing or only called a tool.
        trusted_time: whether ``ts`` can be believed; if not, maturity counts from the first feedback.
        audit: whether the interaction is in the audit sample.
        calls_tools: whether the answer calls a tool, so that it can be learned without a text.
        refused: whether the answer is a refusal.
        before: an earlier answer to the same prompt in the same conversation, which this one came instead of.
        user_key: who had asked; "" when nobody knows.
    """

    interaction_id: str
    task: str
    ts: datetime
    trusted_time: bool
    answer: str
    audit: bool
    calls_tools: bool = False
    refused: bool = False
    before: str = ""
    user_key: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the evidence comes to.

    Args:
        source: the strongest evidence, or the one that names the right answer.
        y: probability that the model's answer was good.
        confidence: how far ``y`` is from not knowing, from 0 to 1.
        chosen: the right answer, or "".
        weight: what a target from it weighs in training.
        trusted: whether nobody whose word decided was often found wrong.
        explicit: whether anybody said something, beside signs and judges.
    """

    source: str
    y: float
    confidence: float
    chosen: str = ""
    weight: float = 0.0
    self_generated: bool = False
    conflict: bool = False
    edited: bool = False
    trusted: bool = True
    explicit: bool = False
    reasons: tuple[str, ...] = ()


def weigh(evidence: Sequence[Evidence], target: Target, policy: LabelPolicy, reliability: Reliability) -> Verdict:
    """What evidence, strongest first, comes to."""
    angry = [item for item in evidence if target.refused and not item.good and item.source in ("thumb", "implicit")]
    explicit = any(item.source in _EXPLICIT for item in evidence)
    evidence = [item for item in evidence if item not in angry]
    notes: tuple[str, ...] = (REFUSAL,) if angry else ()
    if not evidence:
        return Verdict("none", 0.5, 0.0, explicit=explicit, reasons=notes)
    # Who is hardly believed outweighs nobody, and brings nobody into a conflict.
    believed = [item for item in evidence if reliability.get(item.author, 1.0) > LEAST]
    evidence = believed or evidence
    notes += () if believed else (DOUBTED,)
    head = _head(evidence)
    if _disagree(head, evidence):
        reasons = (CONFLICT, *_reasons(item for item in evidence if item.source in STRONG), *notes)
        return Verdict(head[0].source, 0.5, 0.0, conflict=True, explicit=explicit, reasons=reasons)
    decisive = head[0].source in _DECISIVE
    counting = [item for item in evidence if not decisive or item.good == head[0].good]
    overruled = sorted({item.source for item in evidence} - {item.source for item in counting})
    reasons = _reasons(head if decisive else counting)
    reasons += (*(f"overrules {_WORDS[source]}" for source in overruled), *notes)
    y = _sigmoid(_log_odds(counting, policy, reliability, decisive))
    deciding = next((item for item in head if item.text), head[0])
    found = Verdict(deciding.source, y, round(abs(2 * y - 1), 6), explicit=explicit, reasons=reasons)
    return _good(found, head, target, reliability) if y > 0.5 else _bad(found, head, evidence, reliability)


def _good(found: Verdict, head: Sequence[Evidence], target: Target, reliability: Reliability) -> Verdict:
    """The model's answer is the right one: checked by somebody, or known only by what came of it."""
    checks = [item for item in head if item.good and (item.text or item.source in _CHECKED)]
    weight = max((_worth(item, reliability) for item in checks), default=found.confidence)
    trusted = _trusted(head, reliability)
    return replace(found, chosen=target.answer, weight=weight, self_generated=not checks, trusted=trusted)


def _bad(found: Verdict, head: Sequence[Evidence], evidence: Sequence[Evidence], reliability: Reliability) -> Verdict:
    """The model's answer is wrong: the strongest that names a right one decides what to learn."""
    texts = [item for item in head if item.text and not item.good]
    named = texts[0] if texts else _better_answer(evidence)
    if named is None:
        return replace(found, weight=found.confidence)
    return replace(
        found,
        source=named.source,
        chosen=named.text,
        edited=named.edited,
        weight=_worth(named, reliability),
        trusted=_trusted([*head, named], reliability),
        reasons=tuple(dict.fromkeys((*found.reasons, *_reasons([named])))),
    )


def _head(evidence: Sequence[Evidence]) -> list[Evidence]:
    """The strongest evidence; a reviewer who spoke after the verifiers outranks them."""
    by_source: dict[str, list[Evidence]] = defaultdict(list)
    for item in evidence:
        by_source[item.source].append(item)
    verified = max((item.ts for item in by_source["verifier"]), default=None)
    settled = [item for item in by_source["reviewer"] if verified is not None and item.ts > verified]
    return settled or by_source[evidence[0].source]


def _disagree(head: Sequence[Evidence], evidence: Sequence[Evidence]) -> bool:
    """Whether strong evidence contradicts itself; see the module."""
    source, good = head[0].source, head[0].good
    if source not in STRONG:
        return False
    opposite = _OPPOSITES.get(source)
    if any(item.source == opposite and item.good != good for item in evidence):
        return True
    return len({item.good for item in head}) > 1 or len({item.text for item in head if item.text}) > 1


def _log_odds(counting: Iterable[Evidence], policy: LabelPolicy, reliability: Reliability, decisive: bool) -> float:
    """What the evidence adds up to. Where somebody decisive spoke, it does not matter what answers are mostly like."""
    said: dict[str, list[float]] = defaultdict(list)
    for item in counting:
        said[item.source].append(policy.weights.of(item.source, item.good) * reliability.get(item.author, 1.0))
    total = 0.0 if decisive else math.log(policy.base_rate / (1 - policy.base_rate))
    for source, parts in sorted(said.items()):
        limit = math.inf if source in _DECISIVE else policy.crowd_limit
        total += max(-limit, min(limit, math.fsum(parts)))
    return total


def _better_answer(evidence: Sequence[Evidence]) -> Evidence | None:
    """The strongest answer that evidence names beside one that was found wrong, unless its rank is split."""
    named = [item for item in evidence if item.text and not item.good]
    best = [item for item in named if item.rank == named[0].rank]
    return best[0] if len({item.text for item in best}) == 1 else None


def _worth(item: Evidence, reliability: Reliability) -> float:
    """What a target that this evidence names, or confirms, weighs in training."""
    return round(_WEIGHT[item.source] * reliability.get(item.author, 1.0), 6)


def _trusted(deciding: Iterable[Evidence], reliability: Reliability) -> bool:
    return all(reliability.get(item.author, 1.0) >= TRUSTED for item in deciding)


def _reasons(items: Iterable[Evidence]) -> tuple[str, ...]:
    """Plain words, none of them from the log."""
    return tuple(dict.fromkeys(_reason(item) for item in items))


def _reason(item: Evidence) -> str:
    who = _WORDS[item.source]
    if item.kind == SAYS:
        return "the user's next message thanks" if item.good else "the user's next message complains"
    if item.kind in ("regenerate", "accept"):
        return "the answer was regenerated" if item.kind == "regenerate" else "the answer was accepted"
    if item.text:
        return f"{who} agrees with the answer" if item.good else f"corrected by {who}"
    if item.kind == "thumb" and item.source == "thumb":
        return "thumb up" if item.good else "thumb down"
    if item.kind == "rating" and item.source == "thumb":
        return "best rating" if item.good else "worst rating"
    return f"{who} calls the answer {'right' if item.good else 'wrong'}"


def _sigmoid(log_odds: float) -> float:
    return round(1 / (1 + math.exp(-log_odds)), 6)
