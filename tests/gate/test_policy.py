"""Every path to a verdict, and the promises about its errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from flywheel.config import GatePolicy, SuitePolicy
from flywheel.evaluation.report import SuiteScores
from flywheel.gate.policy import foresee, judge, spent_alpha

Paired = Callable[..., SuiteScores]

GATE = GatePolicy()
SUITES = SuitePolicy(gate_min=40, golden_min=0)


def test_a_clear_gain_without_loss_is_promoted_with_its_numbers_in_words(paired: Paired) -> None:
    verdict = judge(GATE, SUITES, paired(fixed=21, broken=1, right=15, wrong=3), paired(right=70, kind="golden"))
    assert verdict.verdict == "promote" and verdict.tested
    assert verdict.reasons[0].startswith("gate accuracy 0.40 -> 0.90 on 40 items (21 fixed, 1 broken, p = ")
    assert verdict.reasons[0].endswith("needs <= 0.05)")
    assert "golden accuracy 1.00 -> 1.00" in verdict.reasons[1]


def test_a_higher_mean_that_chance_explains_is_rejected_and_says_what_would_have_shown(paired: Paired) -> None:
    verdict = judge(GATE, SUITES, paired(fixed=6, broken=3, right=30, wrong=1), None)
    assert verdict.verdict == "reject" and verdict.tested
    assert verdict.reasons[0].startswith("not shown to be better: gate accuracy")
    assert "would have shown" in verdict.reasons[0]


def test_a_significant_gain_below_the_smallest_worthwhile_one_is_rejected(paired: Paired) -> None:
    scores = paired(fixed=8, broken=0, right=992)
    assert judge(GATE, SUITES, scores, None).reasons[0].startswith("gain too small")
    assert judge(GATE.model_copy(update={"min_gain": 0.005}), SUITES, scores, None).verdict == "promote"


def test_too_few_gate_items_are_inconclusive_say_how_many_are_missing_and_spend_nothing(paired: Paired) -> None:
    verdict = judge(GATE, SUITES, paired(fixed=30, right=3), None)
    assert verdict.verdict == "inconclusive" and not verdict.tested
    assert "7 more labelled audit items are missing" in verdict.reasons[0]


def test_many_items_of_few_conversations_are_few(paired: Paired) -> None:
    verdict = judge(GATE, SUITES, paired(fixed=60, right=60, per_cluster=6), None)
    assert verdict.verdict == "inconclusive"
    assert "has 20 independent items" in verdict.reasons[0]


def test_too_few_golden_items_are_inconclusive_when_the_policy_asks_for_some(paired: Paired) -> None:
    wanted = SUITES.model_copy(update={"golden_min": 20})
    verdict = judge(GATE, wanted, paired(fixed=30, right=20), paired(right=12, kind="golden"))
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons == ("the golden suite has 12 items and needs 20: 8 are missing",)


def test_repeated_prompts_prove_no_gain(paired: Paired) -> None:
    flat = paired(fixed=4, broken=4, right=40)
    loud = paired(fixed=40)
    both = SuiteScores(
        suite=flat.suite,
        kind="gate",
        clusters=flat.clusters + [100 + cluster for cluster in loud.clusters],
        slices=flat.slices + ["repeat"] * 40,
        champion=flat.champion + loud.champion,
        candidate=flat.candidate + loud.candidate,
    )
    verdict = judge(GATE, SUITES, both, None)
    assert verdict.verdict == "reject"
    assert verdict.numbers["repeat"]["gain"] == 1.0 and verdict.numbers["gate"]["gain"] == 0.0


def test_a_gross_drop_on_repeated_prompts_blocks(paired: Paired) -> None:
    good, bad = paired(fixed=30, right=20), paired(broken=12, right=20)
    both = SuiteScores(
        suite=good.suite,
        kind="gate",
        clusters=good.clusters + [100 + cluster for cluster in bad.clusters],
        slices=good.slices + ["repeat"] * 32,
        champion=good.champion + bad.champion,
        candidate=good.candidate + bad.candidate,
    )
    verdict = judge(GATE, SUITES, both, None)
    assert verdict.verdict == "reject" and verdict.reasons[0].startswith("gross drop on repeated prompts")


def test_a_candidate_that_forgets_the_golden_suite_is_rejected_however_large_its_gain(paired: Paired) -> None:
    verdict = judge(GATE, SUITES, paired(fixed=30, right=20), paired(broken=24, right=13, wrong=3, kind="golden"))
    assert verdict.verdict == "reject"
    assert verdict.reasons[0].startswith("golden lost more than 5.0 points: golden accuracy 0.93 -> 0.33 on 40 items")


def test_golden_suites_of_59_and_more_must_show_non_inferiority(paired: Paired) -> None:
    gain = paired(fixed=30, right=20)
    held = judge(GATE, SUITES, gain, paired(right=59, kind="golden"))
    assert held.verdict == "promote" and held.numbers["golden"]["rule"] == "non-inferiority"
    lost = judge(GATE, SUITES, gain, paired(broken=2, right=60, kind="golden"))
    assert lost.verdict == "reject" and lost.reasons[0].startswith("golden not shown to hold within 5.0 points")


def test_golden_suites_too_small_for_non_inferiority_pass_by_the_named_weaker_rule(paired: Paired) -> None:
    gain = paired(fixed=30, right=20)
    held = judge(GATE, SUITES, gain, paired(broken=2, right=38, kind="golden"))
    assert held.verdict == "promote" and held.numbers["golden"]["rule"] == "no harm"
    assert any("40 items are too few for non-inferiority, which takes 59" in reason for reason in held.reasons)
    assert judge(GATE, SUITES, gain, paired(broken=3, right=37, kind="golden")).verdict == "reject"


def test_small_golden_suites_still_show_non_inferiority_when_enough_was_fixed(paired: Paired) -> None:
    verdict = judge(GATE, SUITES, paired(fixed=30, right=20), paired(fixed=5, right=35, kind="golden"))
    assert verdict.verdict == "promote" and verdict.numbers["golden"]["rule"] == "non-inferiority"


def test_a_loss_within_a_wide_margin_is_still_harm_when_it_is_significant(paired: Paired) -> None:
    wide = GATE.model_copy(update={"golden_margin": 0.3, "golden_alpha": 1e-9})
    verdict = judge(wide, SUITES, paired(fixed=30, right=20), paired(broken=9, right=31, kind="golden"))
    assert verdict.verdict == "reject" and verdict.reasons[0].startswith("golden is worse")


def test_a_task_without_golden_items_says_so(paired: Paired) -> None:
    verdict = judge(GATE, SUITES, paired(fixed=30, right=20), paired(kind="golden"))
    assert verdict.verdict == "promote"
    assert any("no golden suite" in reason for reason in verdict.reasons)


def test_broken_evidence_is_invalid_whatever_the_scores_say(paired: Paired) -> None:
    good = paired(fixed=30, right=20)
    assert judge(GATE, SUITES, None, None).verdict == "invalid"
    assert judge(GATE, SUITES, good, None, faults=["the candidate was trained on 3 items"]).reasons == (
        "the candidate was trained on 3 items",
    )
    short = good.model_copy(update={"candidate": good.candidate[:-1]})
    verdict = judge(GATE, SUITES, short, None)
    assert verdict.verdict == "invalid" and "disagree on the number of items" in verdict.reasons[0]
    odd = good.model_copy(update={"candidate": [2] * 50})
    assert "scores other than 0 and 1" in judge(GATE, SUITES, odd, None).reasons[0]
    assert not verdict.tested


def test_an_empty_gate_suite_is_inconclusive_even_when_no_items_are_asked_for(paired: Paired) -> None:
    assert judge(GATE, SUITES.model_copy(update={"gate_min": 1}), paired(), None).verdict == "inconclusive"


def test_a_reused_suite_must_clear_alpha_divided_by_its_shelf_life(paired: Paired) -> None:
    scores = paired(fixed=6, broken=0, right=34)  # p = 1/64
    assert judge(GATE, SUITES, scores, None, uses=[0] * 40).verdict == "promote"
    again = judge(GATE, SUITES, scores, None, uses=[0] * 39 + [1])
    assert again.verdict == "reject" and "needs <= 0.01" in again.reasons[0]
    assert spent_alpha(GATE, SUITES, [1, 0]) == pytest.approx(0.01)
    assert spent_alpha(GATE, SUITES, []) == 0.05


def test_dependent_items_use_the_clustered_test_and_interval(paired: Paired) -> None:
    few = SUITES.model_copy(update={"gate_min": 5})
    verdict = judge(GATE, few, paired(fixed=12, right=18, per_cluster=3), None)  # 12 fixed items, but 4 clusters
    assert verdict.numbers["gate"]["test"] == "sign flip of clusters"
    assert verdict.numbers["gate"]["p_better"] == pytest.approx(1 / 16)
    assert verdict.verdict == "reject"


def test_no_gain_loops_are_promoted_no_more_often_than_alpha(paired: Paired) -> None:
    rng = np.random.default_rng(11)
    draws = rng.multinomial(100, [0.1, 0.1, 0.5, 0.3], size=400)
    promoted = 0
    for fixed, broken, right, wrong in draws.tolist():
        scores = paired(fixed=fixed, broken=broken, right=right, wrong=wrong)
        promoted += judge(GATE, SUITES, scores, None).verdict == "promote"
    assert promoted / len(draws) <= 0.065
    assert promoted > 0  # the gate is not merely shut


def test_the_same_evidence_gives_the_same_verdict(paired: Paired) -> None:
    scores, golden = paired(fixed=9, broken=3, right=30), paired(right=40, broken=1, kind="golden")
    assert judge(GATE, SUITES, scores, golden) == judge(GATE, SUITES, scores, golden)


def test_what_a_gate_could_show_is_said_beforehand() -> None:
    assert foresee(GATE, SUITES, 100, reused=False).startswith(
        "100 independent gate items can show gains from about 11.1 points (alpha 0.05"
    )
    assert "alpha 0.01" in foresee(GATE, SUITES, 100, reused=True)
