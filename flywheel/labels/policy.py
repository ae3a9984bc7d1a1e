"""The labelling rules: feedback on one interaction to one label. A pure function; nothing here reads or writes.

- The strongest evidence decides. A right answer that a weaker piece of evidence brings is used when the strongest only
  says that the model's answer was wrong.
- Equally strong evidence that disagrees is a conflict and trains nothing.
- A text that equals the model's answer confirms it: a person or a verifier has checked it, so the target does not
  count as written by the model itself. The same holds for a reviewer's or verifier's plain yes. A thumb up or a good
  outcome makes the answer a target, too, but one that only the model wrote (``self_generated``).
- A thumb down alone makes no target: it does not say what would have been right.
- Interactions of the audit sample never train. They become evaluation items when the label comes from a source that the
  policy trusts with that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from flywheel.config import LabelPolicy
from flywheel.labels.evidence import STRONG, Evidence, Row, current, read_evidence
from flywheel.store.digests import digest

RULES_VERSION = 1
"""Part of every label's policy digest: raise it when a rule changes, and every label gets a new version."""

# Log-odds that the answer was good, after evidence (for, against); and how much a target from it weighs in training.
_LOG_ODDS = {
    "verifier": (4.0, -4.0),
    "reviewer": (3.0, -3.0),
    "correction": (3.0, -3.0),
    "outcome": (1.5, -2.0),
    "thumb": (1.0, -1.5),
    "judge": (1.0, -1.0),
    "implicit": (0.7, -0.7),
}
_WEIGHT = {"verifier": 1.0, "reviewer": 1.0, "correction": 1.0, "outcome": 0.8, "thumb": 0.5, "judge": 0.3}
_CHECKED = ("verifier", "reviewer")
_WORDS = {
    "verifier": "the verifier",
    "reviewer": "a reviewer",
    "correction": "the user",
    "outcome": "the task's outcome",
    "thumb": "the user",
    "judge": "the judge",
    "implicit": "the user's behaviour",
}

CONFLICT = "equally strong feedback disagrees"


@dataclass(frozen=True)
class Target:
    """What a label is about.

    Args:
        answer: the text of the model's answer; "" when it said nothing or called a tool.
        trusted_time: whether ``ts`` can be believed; if not, maturity counts from the first feedback.
        audit: whether the interaction is in the audit sample.
    """

    interaction_id: str
    task: str
    ts: datetime
    trusted_time: bool
    answer: str
    audit: bool


@lru_cache(maxsize=64)
def policy_digest(policy: LabelPolicy) -> str:
    """Digest of the policy and of the rules in this module. What verifiers and judges say comes as feedback."""
    said = policy.model_dump(mode="json", exclude={"verifiers", "judge"})
    return digest({"policy": said, "rules": RULES_VERSION})


def matures_at(target: Target, rows: Sequence[Row], policy: LabelPolicy) -> datetime:
    """When the label of ``target`` closes: its time plus the maturity window."""
    start = target.ts if target.trusted_time else min((row["ts"] for row in rows), default=target.ts)
    return start + timedelta(hours=policy.maturity_hours)


def make_label(target: Target, rows: Iterable[Row], policy: LabelPolicy, now: datetime) -> dict[str, Any] | None:
    """The label of one interaction from its feedback: a row of the labels table without ``seq``.

    None when nothing given by ``now`` says anything about the answer. The caller checks maturity.
    """
    rows = list(rows)
    evidence = read_evidence(current(rows, now), target.answer)
    if not evidence:
        return None
    verdict = _decide(evidence, target)
    use, note = _use(verdict, target, policy)
    return finished(
        target, policy, matures_at(target, rows, policy), use=use, verdict=verdict, reasons=[*verdict.reasons, *note]
    )


def withdrawn(target: Target, policy: LabelPolicy) -> dict[str, Any]:
    """The label of an interaction that had one and whose feedback has been taken back since."""
    verdict = Verdict(source="none", y=0.5, confidence=0.0)
    reasons = ["the feedback was taken back"]
    return finished(target, policy, matures_at(target, [], policy), use="none", verdict=verdict, reasons=reasons)


@dataclass(frozen=True)
class Verdict:
    """What the evidence comes to.

    Args:
        y: probability that the model's answer was good.
        chosen: the right answer, or "".
        rejected: the model's answer, when another is known to be right.
    """

    source: str
    y: float
    confidence: float
    chosen: str = ""
    rejected: str = ""
    self_generated: bool = False
    conflict: bool = False
    reasons: tuple[str, ...] = ()


def finished(
    target: Target, policy: LabelPolicy, matured_at: datetime, *, use: str, verdict: Verdict, reasons: Sequence[str]
) -> dict[str, Any]:
    """A row of the labels table, with the digest of its content."""
    label = {
        "task": target.task,
        "target_kind": "interaction",
        "target_id": target.interaction_id,
        "policy_digest": policy_digest(policy),
        "use": use,
        "y": verdict.y,
        "confidence": verdict.confidence,
        "weight": _WEIGHT.get(verdict.source, 0.0) if use != "none" else 0.0,
        "chosen": verdict.chosen,
        "rejected": verdict.rejected,
        "label_source": verdict.source,
        "self_generated": verdict.self_generated,
        "reasons": list(reasons),
    }
    content = label | {"matured_at": matured_at.timestamp()}
    return label | {"matured_at": matured_at, "digest": digest(content)}


def _decide(evidence: Sequence[Evidence], target: Target) -> Verdict:
    top = [item for item in evidence if item.rank == evidence[0].rank]
    # A text outweighs a plain yes or no of the same rank only in naming the source; both must agree.
    deciding = next((item for item in top if item.text), top[0])
    if len({item.good for item in top}) > 1 or len({item.text for item in top if item.text}) > 1:
        reasons = (CONFLICT, *_reasons(top))
        return Verdict(deciding.source, 0.5, 0.0, conflict=True, reasons=reasons)
    y = _sigmoid(_LOG_ODDS[deciding.source][0 if deciding.good else 1])
    confidence = round(abs(2 * y - 1), 6)
    reasons = _reasons(top)
    overruled = {item.source for item in evidence if item.rank < deciding.rank and item.good != deciding.good}
    reasons += tuple(f"overrules {_WORDS[source]}" for source in sorted(overruled))
    if deciding.good:
        return Verdict(
            deciding.source,
            y,
            confidence,
            chosen=target.answer,
            self_generated=not deciding.text and deciding.source not in _CHECKED,
            reasons=reasons,
        )
    named = deciding if deciding.text else _better_answer(evidence)
    if named is None:
        return Verdict(deciding.source, y, confidence, reasons=reasons)
    if named is not deciding:
        reasons += _reasons([named])
    return Verdict(named.source, y, confidence, chosen=named.text, rejected=target.answer, reasons=reasons)


def _better_answer(evidence: Sequence[Evidence]) -> Evidence | None:
    """The strongest answer that weaker evidence names beside one that was found wrong, unless its rank is split."""
    named = [item for item in evidence if item.text and not item.good]
    best = [item for item in named if item.rank == named[0].rank]
    return best[0] if len({item.text for item in best}) == 1 else None


def _use(verdict: Verdict, target: Target, policy: LabelPolicy) -> tuple[str, list[str]]:
    if verdict.conflict:
        return "none", []
    if not verdict.chosen:
        if verdict.y > 0.5:
            return "none", ["the answer has no text to learn"]
        return "none", ["nobody has said what would have been right"]
    if verdict.source not in _WEIGHT:
        return "none", ["too weak to learn from alone"]
    if not target.audit:
        return "sft", []
    if verdict.source in STRONG and verdict.source in policy.gate_labels:
        return "eval", ["in the audit sample"]
    return "none", ["in the audit sample, where this kind of label does not count"]


def _reasons(items: Sequence[Evidence]) -> tuple[str, ...]:
    """Plain words, none of them from the log."""
    return tuple(dict.fromkeys(_reason(item) for item in items))


def _reason(item: Evidence) -> str:
    who = _WORDS[item.source]
    if item.text:
        return f"{who} agrees with the answer" if item.good else f"corrected by {who}"
    if item.kind == "thumb" and item.source == "thumb":
        return "thumb up" if item.good else "thumb down"
    if item.kind == "rating" and item.source == "thumb":
        return "best rating" if item.good else "worst rating"
    return f"{who} calls the answer {'right' if item.good else 'wrong'}"


def _sigmoid(log_odds: float) -> float:
    return round(1 / (1 + math.exp(-log_odds)), 6)
