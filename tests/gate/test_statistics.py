"""The gate's statistics against scipy, statsmodels, brute force, published tables and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from flywheel.gate import statistics as gate

scores = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 5)), min_size=2, max_size=14)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_half_of_the_two_sided_statsmodels_test_when_the_candidate_leads(n01: int, n10: int) -> None:
    from statsmodels.stats.contingency_tables import mcnemar

    two_sided = mcnemar([[5, n01], [n10, 5]], exact=True).pvalue if n01 + n10 else 1.0
    if n01 > n10:
        assert gate.mcnemar_greater(n01, n10) == pytest.approx(two_sided / 2, rel=1e-9)
    else:
        assert gate.mcnemar_greater(n01, n10) >= 0.5


def test_models_that_never_disagree_are_no_evidence_and_no_division_by_zero() -> None:
    assert gate.mcnemar_greater(0, 0) == 1.0
    assert gate.sign_flip_greater([0, 0, 0]) == 1.0


@given(st.integers(0, 40), st.integers(0, 40))
def test_sign_flip_with_one_item_per_cluster_is_mcnemar(n01: int, n10: int) -> None:
    assert gate.sign_flip_greater([1] * n01 + [-1] * n10) == pytest.approx(gate.mcnemar_greater(n01, n10), abs=1e-12)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_sign_flip_counts_every_pattern_of_signs(sums: list[int]) -> None:
    sizes = [abs(total) for total in sums]
    totals = [sum(sign * size for sign, size in zip(signs, sizes, strict=True)) for signs in _signs(len(sizes))]
    expected = sum(total >= sum(sums) for total in totals) / len(totals)
    assert gate.sign_flip_greater(sums) == pytest.approx(expected, abs=1e-12)


@given(scores)
def test_cluster_robust_interval_equals_statsmodels(rows: list[tuple[int, int, int]]) -> None:
    import statsmodels.api as sm

    champion, candidate, clusters = (list(column) for column in zip(*rows, strict=True))
    groups = len(set(clusters))
    found = gate.cluster_robust(champion, candidate, clusters, level=0.9)
    if groups < 2:
        assert found == gate.Interval(-1.0, 1.0)
        return
    difference = np.array(candidate, float) - np.array(champion, float)
    fit = sm.OLS(difference, np.ones(len(rows))).fit(
        cov_type="cluster", cov_kwds={"groups": np.array(clusters), "use_correction": False}
    )
    # statsmodels' own small-sample factor is G/(G-1) * (n-1)/(n-k); with one constant that is G/(G-1).
    error = float(fit.bse[0]) * math.sqrt(groups / (groups - 1))
    half = stats.t.ppf(0.95, groups - 1) * error
    assert found.low == pytest.approx(max(-1.0, difference.mean() - half), abs=1e-9)
    assert found.high == pytest.approx(min(1.0, difference.mean() + half), abs=1e-9)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_bonett_price_has_width_and_is_mirrored_when_the_models_trade_places(n01: int, n10: int, same: int) -> None:
    n = n01 + n10 + same
    if n == 0:
        with pytest.raises(ValueError, match="at least one item"):
            gate.bonett_price(0, 0, 0)
        return
    one, other = gate.bonett_price(n01, n10, n), gate.bonett_price(n10, n01, n)
    assert one.high > one.low
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))


def test_bonett_price_covers_the_true_difference_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    for n, fixed, broken in ((40, 0.25, 0.05), (100, 0.1, 0.1), (60, 0.02, 0.02)):
        draws = rng.multinomial(n, [fixed, broken, 1 - fixed - broken], size=3000)
        hits = 0
        for n01, n10, _ in draws:
            interval = gate.bonett_price(int(n01), int(n10), n, level=0.9)
            hits += interval.low <= fixed - broken <= interval.high
        assert hits / len(draws) >= 0.88, (n, fixed, broken)


def test_tango_score_equals_the_z_of_its_own_maximum_likelihood_found_by_search() -> None:
    from scipy.optimize import minimize_scalar

    for n01, n10, n, margin in ((3, 5, 60, 0.05), (0, 0, 40, 0.05), (7, 1, 80, 0.1), (2, 9, 200, 0.03)):

        def minus_log_likelihood(q: float, n01: int = n01, n10: int = n10, n: int = n, margin: float = margin) -> float:
            return -float(stats.multinomial.logpmf([n01, n10, n - n01 - n10], n, [q - margin, q, 1 - 2 * q + margin]))

        found = minimize_scalar(
            minus_log_likelihood,
            bounds=(margin + 1e-9, (1 + margin) / 2 - 1e-9),
            method="bounded",
            options={"xatol": 1e-12},
        )
        q = float(found.x)
        z = (n01 - n10 + n * margin) / math.sqrt(n * (2 * q - margin - margin**2))
        assert gate.tango(n01, n10, n, margin) == pytest.approx(z, rel=1e-4)


def test_non_inferiority_without_any_change_has_its_closed_form() -> None:
    for n, margin in ((40, 0.05), (59, 0.05), (100, 0.02)):
        assert gate.non_inferior(0, 0, n, margin) == pytest.approx((1 - margin) ** n, rel=1e-6)
    assert gate.items_for_non_inferiority(0.05, 0.05) == 59
    assert gate.non_inferior(0, 0, 59, 0.05) <= 0.05 < gate.non_inferior(0, 0, 58, 0.05)


@pytest.mark.parametrize(("n", "margin"), [(25, 0.1), (40, 0.05), (60, 0.05)])
def test_a_candidate_worse_by_the_margin_rarely_passes_non_inferiority(n: int, margin: float) -> None:
    """Type I error by exact summation over all outcomes, for many shares of broken items."""
    passes = {
        (n01, n10)
        for n01 in range(n + 1)
        for n10 in range(n + 1 - n01)
        if n01 - n10 > -n * margin - 1 and gate.non_inferior(n01, n10, n, margin) <= 0.05
    }
    counts = np.array([[a, b, n - a - b] for a, b in sorted(passes)])
    for share in (margin, margin + 0.01, margin + 0.03, 0.15, 0.3, (1 + margin) / 2 - 0.01):
        chances = [share - margin, share, 1 - 2 * share + margin]
        assert stats.multinomial.pmf(counts, n, chances).sum() <= 0.0505, share


def test_tangos_normal_approximation_alone_would_break_the_promise_on_small_suites() -> None:
    """Why the exact form is used: for n = 53 an unchanged candidate passes although (1 - .05)^53 = .066."""
    assert stats.norm.sf(gate.tango(0, 0, 53, 0.05)) < 0.05
    assert gate.non_inferior(0, 0, 53, 0.05) > 0.05


def test_large_suites_use_the_approximation_and_it_is_close_to_the_exact_value() -> None:
    exact = gate.non_inferior(20, 22, gate.EXACT_LIMIT, 0.05)
    approximate = gate.non_inferior(20, 22, gate.EXACT_LIMIT + 1, 0.05)
    assert approximate == pytest.approx(exact, abs=0.003)


@pytest.mark.parametrize(("n", "margin"), [(0, 0.05), (10, 0.0), (10, 1.0)])
def test_non_inferiority_refuses_questions_without_meaning(n: int, margin: float) -> None:
    with pytest.raises(ValueError, match="needs items and a margin"):
        gate.non_inferior(0, 0, n, margin)


@pytest.mark.parametrize(
    ("n", "discordance", "points"),
    [(100, 0.1, 7.8), (100, 0.2, 11.0), (300, 0.2, 6.4), (500, 0.3, 6.1), (1000, 0.1, 2.5), (2000, 0.2, 2.5)],
)
def test_detectable_gain_agrees_with_the_published_table(n: int, discordance: float, points: float) -> None:
    assert 100 * gate.detectable_gain(n, 0.05, discordance) == pytest.approx(points, abs=0.15)


def test_the_detectable_gain_is_detected_about_as_often_as_promised() -> None:
    rng = np.random.default_rng(3)
    n, discordance = 300, 0.2
    gain = gate.detectable_gain(n, 0.05, discordance)
    fixed, broken = (discordance + gain) / 2, (discordance - gain) / 2
    draws = rng.multinomial(n, [fixed, broken, 1 - discordance], size=1500)
    found = sum(gate.mcnemar_greater(int(n01), int(n10)) <= 0.05 for n01, n10, _ in draws)
    assert 0.70 <= found / len(draws) <= 0.88


def test_items_needed_for_a_margin_agree_with_the_published_numbers() -> None:
    assert gate.items_needed(0.02, 0.05, 0.1) == pytest.approx(1546, abs=2)
    assert gate.items_needed(0.05, 0.05, 0.2) == pytest.approx(495, abs=2)


def test_wilson_interval_of_nothing_is_everything() -> None:
    assert gate.wilson(0, 0) == gate.Interval(0.0, 1.0)
    assert gate.wilson(9, 10).low < 0.9 < gate.wilson(9, 10).high


def _signs(n: int) -> list[tuple[int, ...]]:
    return list(itertools.product((1, -1), repeat=n))
