"""From paired scores to a verdict with its reasons. A pure function: no clock, no store, no randomness.

The order of questions: is the evidence whole (else ``invalid``), is there enough of it (else ``inconclusive``), is the
candidate better on fresh items and no worse on the golden ones (``promote``, else ``reject``).

Non-inferiority on golden items needs at least ``items_for_non_inferiority`` of them. With fewer, even a candidate that
breaks nothing could not prove itself, so a weaker rule is used and named in the reasons: no loss beyond the margin,
and no significant harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from flywheel.config import GatePolicy, SuitePolicy
from flywheel.evaluation.report import SuiteScores
from flywheel.gate import statistics

VerdictName = Literal["promote", "reject", "inconclusive", "invalid"]

GROSS_DROP = 0.10
"""A significant loss beyond this on `repeat` items blocks a promotion, although that slice can prove no gain."""

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Verdict:
    """The outcome.

    Attributes:
        verdict: what to do.
        reasons: plain sentences with numbers; the decisive ones first. No log text.
        numbers: the evidence, as JSON values.
        tested: whether the candidate's scores decided, so that the items count as used once more.
    """

    verdict: VerdictName
    reasons: tuple[str, ...]
    numbers: dict[str, Any] = field(default_factory=dict)
    tested: bool = False


def spent_alpha(policy: GatePolicy, suites: SuitePolicy, uses: Sequence[int]) -> float:
    """The error this gate may make: all of alpha on items never used, alpha over the shelf life on a reused suite."""
    return policy.alpha if not any(uses) else policy.alpha / suites.max_uses


def foresee(policy: GatePolicy, suites: SuitePolicy, items: int, *, reused: bool, discordance: float = 0.2) -> str:
    """What a gate of so many independent items could show, in words; to be shown before training is paid for.

    Args:
        discordance: guess at the share of items on which champion and candidate will differ.
    """
    alpha = spent_alpha(policy, suites, [int(reused)])
    gain = statistics.detectable_gain(items, alpha, discordance)
    return (
        f"{items} independent gate items can show gains from about {_points(gain)} (alpha {alpha:.3g}, power 80 %, "
        f"if the releases differ on {100 * discordance:.0f} % of items)"
    )


def judge(
    policy: GatePolicy,
    suites: SuitePolicy,
    gate: SuiteScores | None,
    golden: SuiteScores | None,
    *,
    uses: Sequence[int] = (),
    faults: Sequence[str] = (),
) -> Verdict:
    """Judge a candidate against the champion.

    Args:
        gate: paired scores on the gate suite, or None when they could not be read (say why in ``faults``).
        golden: paired scores on the golden suite; None or empty when the task has none.
        uses: how often each gate item has judged before.
        faults: what is wrong with the evidence, found while reading it.
    """
    found = [*faults, *(fault for scores in (gate, golden) if scores is not None and (fault := scores.fault()))]
    if gate is None and not found:
        found = ["there are no gate scores"]
    if found or gate is None:
        return Verdict("invalid", tuple(found))
    alpha = spent_alpha(policy, suites, uses)
    novel, repeat = gate.only("novel"), gate.only("repeat")
    checked = golden.only("novel") if golden is not None else None
    numbers: dict[str, Any] = {"gate": summarise(novel), "alpha": alpha, "reused": any(uses)}
    if repeat.champion:
        numbers["repeat"] = summarise(repeat)
    if checked is not None and checked.champion:
        numbers["golden"] = summarise(checked)
    if too_few := _too_few(suites, novel, checked):
        return Verdict("inconclusive", too_few, numbers)
    outcomes = [_better(policy, alpha, numbers), *_golden(policy, numbers), *_repeat(numbers)]
    failed = [reason for passed, reason in outcomes if not passed]
    passed = [reason for passed, reason in outcomes if passed]
    return Verdict("reject" if failed else "promote", (*failed, *passed), numbers, tested=True)


def summarise(scores: SuiteScores) -> dict[str, Any]:
    """Counts, accuracies, gain, interval and p-value of one slice, as JSON values."""
    n = len(scores.champion)
    if n == 0:
        return {"items": 0, "clusters": 0}
    fixed, broken = statistics.discordant(scores.champion, scores.candidate)
    sums = statistics.cluster_sums(scores.champion, scores.candidate, scores.clusters)
    clustered = len(sums) < n
    if clustered:
        interval = statistics.cluster_robust(scores.champion, scores.candidate, scores.clusters)
    else:
        interval = statistics.bonett_price(fixed, broken, n)
    right = {"champion": sum(scores.champion), "candidate": sum(scores.candidate)}
    spans = {name: statistics.wilson(count, n) for name, count in right.items()}
    return {
        "items": n,
        "clusters": len(sums),
        "champion": right["champion"] / n,
        "candidate": right["candidate"] / n,
        "champion_interval": [spans["champion"].low, spans["champion"].high],
        "candidate_interval": [spans["candidate"].low, spans["candidate"].high],
        "fixed": fixed,
        "broken": broken,
        "gain": (fixed - broken) / n,
        "gain_interval": [interval.low, interval.high],
        "p_better": statistics.sign_flip_greater(sums) if clustered else statistics.mcnemar_greater(fixed, broken),
        "p_worse": statistics.sign_flip_greater([-total for total in sums]),
        "test": "sign flip of clusters" if clustered else "McNemar, exact",
        "level": statistics.LEVEL,
    }


def _too_few(suites: SuitePolicy, novel: SuiteScores, golden: SuiteScores | None) -> tuple[str, ...]:
    reasons = []
    if (have := novel.independent()) < suites.gate_min:
        reasons.append(
            f"the gate suite has {have} independent items and needs {suites.gate_min}: "
            f"{suites.gate_min - have} more labelled audit items are missing"
        )
    if (have := len(golden.champion) if golden is not None else 0) < suites.golden_min:
        reasons.append(
            f"the golden suite has {have} items and needs {suites.golden_min}: {suites.golden_min - have} are missing"
        )
    return tuple(reasons)


def _better(policy: GatePolicy, alpha: float, numbers: dict[str, Any]) -> tuple[bool, str]:
    found = numbers["gate"]
    discordance = (found["fixed"] + found["broken"]) / found["items"]
    detectable = statistics.detectable_gain(found["clusters"], alpha, discordance)
    numbers["detectable_gain"] = detectable
    numbers["min_gain"] = policy.min_gain
    evidence = f"gate {_change(found)}, {_p(found['p_better'])}, needs <= {alpha:.3g})"
    if found["p_better"] > alpha:
        return False, f"not shown to be better: {evidence}; gains from about {_points(detectable)} would have shown"
    if found["gain"] < policy.min_gain:
        return False, f"gain too small: {evidence}; a promotion needs {_points(policy.min_gain)}"
    return True, evidence


def _golden(policy: GatePolicy, numbers: dict[str, Any]) -> list[tuple[bool, str]]:
    found = numbers.get("golden")
    if found is None:
        return [(True, "there is no golden suite, so nothing guards old behaviour")]
    margin, level = policy.golden_margin, policy.golden_alpha
    p = statistics.non_inferior(found["fixed"], found["broken"], found["items"], margin)
    needed = statistics.items_for_non_inferiority(margin, level)
    found.update({"p_inferior": p, "margin": margin, "rule": "non-inferiority"})
    evidence = f"golden {_change(found)}"
    if p <= level:
        return [(True, f"{evidence}, {_p(p)} for a loss of {_points(margin)}, needs <= {level:.3g})")]
    if found["items"] >= needed:
        return [
            (False, f"golden not shown to hold within {_points(margin)}: {evidence}, {_p(p)}, needs <= {level:.3g})")
        ]
    found["rule"] = "no harm"
    small = f"{found['items']} items are too few for non-inferiority, which takes {needed}"
    if -found["gain"] > margin + 1e-12:
        return [(False, f"golden lost more than {_points(margin)}: {evidence}; {small})")]
    if found["p_worse"] < SIGNIFICANT:
        return [(False, f"golden is worse: {evidence}, {_p(found['p_worse'])} for harm; {small})")]
    return [(True, f"{evidence}; no harm found: loss within {_points(margin)}, {_p(found['p_worse'])}; {small})")]


def _repeat(numbers: dict[str, Any]) -> list[tuple[bool, str]]:
    found = numbers.get("repeat")
    if found is None or -found["gain"] <= GROSS_DROP or found["p_worse"] >= SIGNIFICANT:
        return []
    return [(False, f"gross drop on repeated prompts: {_change(found)}, {_p(found['p_worse'])} for harm)")]


def _change(found: dict[str, Any]) -> str:
    """``accuracy 0.42 -> 0.91 on 40 items (27 fixed, 1 broken``, left open for what follows."""
    return (
        f"accuracy {found['champion']:.2f} -> {found['candidate']:.2f} on {found['items']} items "
        f"({found['fixed']} fixed, {found['broken']} broken"
    )


def _p(value: float) -> str:
    return f"p = {value:.2g}"


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"
