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

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from flywheel.config_labels import LabelPolicy
from flywheel.labels.evidence import STRONG, Evidence, Row, current, read_evidence
from flywheel.labels.preferences import Pair, read_pair
from flywheel.labels.verdict import Reliability, Target, Verdict, weigh
from flywheel.store.digests import digest

RULES_VERSION = 2
"""Part of every label's policy digest: raise it when a rule changes, and every label gets a new version."""

_REGENERATED_WEIGHT = 0.5

UNSURE = "too little to tell whether the answer was good"
NOBODY_SAID = "nobody has said what would have been right"


@lru_cache(maxsize=64)
def policy_digest(policy: LabelPolicy) -> str:
    """Digest of the policy and of the rules here and in `verdict`. What verifiers and judges say comes as feedback."""
    said = policy.model_dump(mode="json", exclude={"verifiers", "judge"})
    return digest({"policy": said, "rules": RULES_VERSION})


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
    verdict = weigh(evidence, target, policy, reliability or {})
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
        own = pair.chosen == target.answer.strip()
        verdict = replace(verdict, chosen=pair.chosen, weight=pair.weight, source=pair.source, self_generated=own)
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
