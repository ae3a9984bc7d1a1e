"""The labelling rules: feedback on one interaction to one label. A pure function; nothing here reads or writes.

- Evidence adds up in log-odds, from the share of answers that are good before anybody spoke (`base_rate`). What all
  thumbs of one answer say together is bounded, and so for outcomes, signs and judges: a crowd is no verifier.
- Where a verifier, a reviewer or a correction speaks, weaker evidence that disagrees does not count. A right answer
  that it brings is used when the stronger only says that the model's answer was wrong.
- Strong evidence that disagrees is a conflict: it teaches nothing and waits for a reviewer. That is equal evidence, a
  correction against an outcome, and a verifier against a reviewer, unless the reviewer spoke after the verifier.
- What is not certain enough teaches nothing: unknown is never taken for good or bad.
- A text that equals the model's answer confirms it: a person or a verifier has checked it, so the target does not
  count as written by the model itself. The same holds for a reviewer's or verifier's plain yes. Other answers that are
  found good become targets that only the model wrote (``self_generated``).
- An answer that is only known to be good or bad, not what would have been right, teaches as such (``kto``). Nobody
  learns to say what was disliked.
- A pair is made only of answers of which a person chose one: an answer and its edited form, two that were compared, and
  one that was accepted after another was regenerated.
- Anger at a refusal does not count.
- Interactions of the audit sample never train. They become evaluation items when the label comes from a source that the
  policy trusts with that, and from nobody who was often found wrong.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from flywheel.config_labels import LabelPolicy
from flywheel.labels.evidence import SAYS, STRONG, Author, Evidence, Row, current, read_evidence
from flywheel.labels.preferences import Pair, read_pair
from flywheel.store.digests import digest

RULES_VERSION = 2
"""Part of every label's policy digest: raise it when a rule changes, and every label gets a new version."""

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
_REGENERATED_WEIGHT = 0.5
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
UNSURE = "too little to tell whether the answer was good"
NOBODY_SAID = "nobody has said what would have been right"
REFUSAL = "anger at a refusal does not count"
"""Reasons that name no author."""

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


@lru_cache(maxsize=64)
def policy_digest(policy: LabelPolicy) -> str:
    """Digest of the policy and of the rules in this module."""
    return digest({"policy": policy.model_dump(mode="json"), "rules": RULES_VERSION})


def matures_at(target: Target, rows: Sequence[Row], evidence: Sequence[Evidence], policy: LabelPolicy) -> datetime:
    """When the label of ``target`` closes: its time plus the longest window of what speaks about it."""
    start = target.ts if target.trusted_time else min((row["ts"] for row in rows), default=target.ts)
    hours = max((policy.hours(item.source) for item in evidence), default=policy.maturity_hours)
    return start + timedelta(hours=hours)


def make_label(
    target: Target, rows: Iterable[Row], policy: LabelPolicy, now: datetime, reliability: Reliability | None = None
) -> dict[str, Any] | None:
    """The label of one interaction from its feedback: a row of the labels table without ``seq``.

    None when nothing given by ``now`` says anything about the answer, or only the user's behaviour does and nothing
    comes of it. The caller checks maturity.
    """
    rows = list(rows)
    counting = current(rows, now)
    evidence = read_evidence(counting, target.answer, policy.edits)
    pair = read_pair(counting, target.answer)
    if not evidence and pair is None:
        return None
    verdict = _verdict(evidence, target, policy, reliability or {})
    use, note, pair = _use(verdict, pair, target, policy)
    if use == "none" and not verdict.explicit and all(item.source == "implicit" for item in evidence):
        return None
    closes = matures_at(target, rows, evidence, policy)
    return finished(target, policy, closes, use=use, verdict=verdict, pair=pair, reasons=[*verdict.reasons, *note])


def withdrawn(target: Target, policy: LabelPolicy) -> dict[str, Any]:
    """The label of an interaction that had one and whose feedback has been taken back since."""
    verdict = Verdict(source="none", y=0.5, confidence=0.0)
    reasons = ["the feedback was taken back"]
    return finished(target, policy, matures_at(target, [], [], policy), use="none", verdict=verdict, reasons=reasons)


def finished(
    target: Target,
    policy: LabelPolicy,
    matured_at: datetime,
    *,
    use: str,
    verdict: Verdict,
    reasons: Sequence[str],
    pair: Pair | None = None,
) -> dict[str, Any]:
    """A row of the labels table, with the digest of its content."""
    if use == "pair" and pair is not None:
        verdict = replace(verdict, chosen=pair.chosen, weight=pair.weight, source=pair.source)
    elif use == "kto" and verdict.y < 0.5:
        verdict = replace(verdict, chosen="", weight=verdict.confidence)  # what was said to be right is too uncertain
    label = {
        "task": target.task,
        "target_kind": "interaction",
        "target_id": target.interaction_id,
        "policy_digest": policy_digest(policy),
        "use": use,
        "y": verdict.y,
        "confidence": verdict.confidence,
        "weight": verdict.weight if use != "none" else 0.0,
        "chosen": verdict.chosen,
        "rejected": pair.rejected if pair else "",
        "shown_first": pair.shown_first if pair else "",
        "label_source": verdict.source,
        "self_generated": verdict.self_generated,
        "reasons": list(reasons),
    }
    content = label | {"matured_at": matured_at.timestamp()}
    return label | {"matured_at": matured_at, "digest": digest(content)}


def _verdict(evidence: Sequence[Evidence], target: Target, policy: LabelPolicy, reliability: Reliability) -> Verdict:
    angry = [item for item in evidence if target.refused and not item.good and item.source in ("thumb", "implicit")]
    explicit = any(item.source in _EXPLICIT for item in evidence)
    evidence = [item for item in evidence if item not in angry]
    notes = (REFUSAL,) if angry else ()
    if not evidence:
        return Verdict("none", 0.5, 0.0, explicit=explicit, reasons=notes)
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


def _use(
    verdict: Verdict, pair: Pair | None, target: Target, policy: LabelPolicy
) -> tuple[str, list[str], Pair | None]:
    """What a label is for, why it is for nothing more, and the pair that comes with it."""
    if verdict.conflict:
        return "none", ["waits for a reviewer"], None
    distance, good = abs(verdict.y - 0.5), verdict.y > 0.5
    certain = distance >= policy.certain
    if target.audit:
        return (*_judging(verdict, policy, certain), None)
    if certain and (verdict.chosen or (good and target.calls_tools)):
        return "sft", [], _beside(verdict, pair, target)
    if pair is not None:
        return "pair", ["one of two answers was preferred"], pair
    if good and target.before and target.answer:
        return "pair", ["it came instead of another answer"], _regenerated(target)
    if verdict.explicit and distance >= policy.certain_kto and (target.answer or target.calls_tools):
        return "kto", ["known to be good or bad only"], None
    if distance < policy.certain:
        return "none", [UNSURE], None
    return "none", ["the answer has no text to learn" if good else NOBODY_SAID], None


def _judging(verdict: Verdict, policy: LabelPolicy, certain: bool) -> tuple[str, list[str]]:
    """Whether a label of an audited interaction may judge a candidate."""
    if not certain:
        return "none", ["in the audit sample", UNSURE]
    if not verdict.chosen:
        return "none", ["in the audit sample", NOBODY_SAID if verdict.y < 0.5 else "the answer has no text to compare"]
    if verdict.source not in STRONG or verdict.source not in policy.gate_labels:
        return "none", ["in the audit sample, where this kind of label does not count"]
    if not verdict.trusted:
        return "none", ["in the audit sample, where this author's word does not count"]
    return "eval", ["in the audit sample"]


def _beside(verdict: Verdict, pair: Pair | None, target: Target) -> Pair | None:
    """The pair whose better answer is the one that a label teaches anyway."""
    if verdict.edited:
        return Pair(verdict.chosen, target.answer, verdict.weight, verdict.source)
    if pair is None and target.before and verdict.y > 0.5:
        pair = _regenerated(target)
    return pair if pair is not None and pair.chosen == verdict.chosen else None


def _regenerated(target: Target) -> Pair:
    return Pair(target.answer, target.before, _REGENERATED_WEIGHT, "implicit")


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
