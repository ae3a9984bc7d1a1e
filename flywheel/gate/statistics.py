"""Paired statistics for 0/1 scores of two releases on the same items.

Notation: ``n01`` items the candidate has right and the champion wrong ("fixed"), ``n10`` the other way round
("broken"), ``n`` items in all. The gain is ``(n01 - n10) / n``. Everything here is a pure function of such counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.90
"""Two-sided confidence of every interval shown: its lower end is the one-sided 95 % bound."""

EXACT_LIMIT = 400
"""Golden items up to which non-inferiority is computed exactly; beyond, the score test is accurate and cheaper."""


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval."""

    low: float
    high: float


def discordant(champion: Sequence[int], candidate: Sequence[int]) -> tuple[int, int]:
    """``(n01, n10)``: items fixed and items broken by the candidate."""
    pairs = list(zip(champion, candidate, strict=True))
    return pairs.count((0, 1)), pairs.count((1, 0))


def mcnemar_greater(n01: int, n10: int) -> float:
    """One-sided exact McNemar p-value of "the candidate is better", for independent items.

    McNemar 1947; under the null hypothesis the fixed among the discordant items are Binomial(n01 + n10, 1/2).
    """
    if n01 + n10 == 0:
        return 1.0
    return float(stats.binomtest(n01, n01 + n10, 0.5, alternative="greater").pvalue)


def cluster_sums(champion: Sequence[int], candidate: Sequence[int], clusters: Sequence[int]) -> list[int]:
    """Net gain of each cluster (items fixed minus items broken), in the order of the cluster's first item."""
    sums: dict[int, int] = defaultdict(int)
    for before, after, cluster in zip(champion, candidate, clusters, strict=True):
        sums[cluster] += after - before
    return list(sums.values())


def sign_flip_greater(sums: Sequence[int]) -> float:
    """One-sided exact p-value of "the candidate is better" when items come in dependent clusters.

    If the two releases were interchangeable, swapping their names inside any whole cluster would change nothing, so
    every sign pattern of the clusters' net gains is equally likely. The sums are small integers, so the distribution of
    their total over all patterns is computed by convolution, without sampling. With one item per cluster this is the
    exact McNemar test.
    """
    sizes = [abs(total) for total in sums if total]
    if not sizes:
        return 1.0
    reach = sum(sizes)
    weights = np.zeros(2 * reach + 1)
    weights[reach] = 1.0
    for size in sizes:
        weights = (np.roll(weights, size) + np.roll(weights, -size)) / 2  # the ends are empty, so nothing wraps
    return float(min(1.0, weights[reach + sum(sums) :].sum()))


def bonett_price(n01: int, n10: int, n: int, level: float = LEVEL) -> Interval:
    """Interval for the paired difference of proportions (Bonett and Price 2012, add-one); never of zero width.

    Raises ValueError when there are no items.
    """
    if n < 1:
        raise ValueError("an interval needs at least one item")
    fixed, broken = (n01 + 1) / (n + 2), (n10 + 1) / (n + 2)
    centre = fixed - broken
    half = _z(1 - (1 - level) / 2) * math.sqrt((fixed + broken - centre**2) / (n + 2))
    return Interval(max(-1.0, centre - half), min(1.0, centre + half))


def cluster_robust(
    champion: Sequence[int], candidate: Sequence[int], clusters: Sequence[int], level: float = LEVEL
) -> Interval:
    """Interval for the mean paired difference with cluster-robust standard error and Student's t on G - 1 degrees.

    ``se^2 = G/(G-1) * sum_g (sum_{i in g} (d_i - mean))^2 / n^2`` (Miller 2024, arXiv 2411.00640). With fewer than two
    clusters nothing is known and the interval is the whole range.
    """
    n = len(champion)
    gain = (sum(candidate) - sum(champion)) / n
    residuals: dict[int, float] = defaultdict(float)
    for before, after, cluster in zip(champion, candidate, clusters, strict=True):
        residuals[cluster] += after - before - gain
    groups = len(residuals)
    if groups < 2:
        return Interval(-1.0, 1.0)
    error = math.sqrt(groups / (groups - 1) * sum(value**2 for value in residuals.values())) / n
    half = float(stats.t.ppf(1 - (1 - level) / 2, groups - 1)) * error
    return Interval(max(-1.0, gain - half), min(1.0, gain + half))


def wilson(right: int, n: int, level: float = LEVEL) -> Interval:
    """Wilson score interval of one release's accuracy; the whole range when there are no items."""
    if n == 0:
        return Interval(0.0, 1.0)
    found = stats.binomtest(right, n).proportion_ci(level, method="wilson")
    return Interval(float(found.low), float(found.high))


def tango(n01: int, n10: int, n: int, margin: float) -> float:
    """Score statistic of "the true gain is above ``-margin``" (Tango 1998); about standard normal at the margin."""
    delta = -margin
    a = 2 * n
    b = -(n01 + n10) + delta * (2 * n - n01 + n10)
    c = -n10 * delta * (1 - delta)
    q = (math.sqrt(b * b - 4 * a * c) - b) / (2 * a)  # broken rate, most likely given a gain of exactly -margin
    return (n01 - n10 - n * delta) / math.sqrt(n * (2 * q + delta * (1 - delta)))


def non_inferior(n01: int, n10: int, n: int, margin: float) -> float:
    """One-sided p-value of "the candidate is worse by ``margin`` or more": small means non-inferiority is shown.

    Exact and unconditional up to ``EXACT_LIMIT`` items: outcomes are ordered by Tango's score and the worst case over
    the unknown share of broken items is taken, so the error rate keeps its promise for a few dozen items, where normal
    approximations do not. Beyond that Tango's normal approximation is used.

    Args:
        margin: the tolerated loss, in (0, 1).

    Raises:
        ValueError: without items, or with a margin outside (0, 1).
    """
    if n < 1 or not 0 < margin < 1:
        raise ValueError(f"non-inferiority needs items and a margin in (0, 1), found n={n}, margin={margin}")
    observed = tango(n01, n10, n, margin)
    if n > EXACT_LIMIT:
        return float(stats.norm.sf(observed))
    return _worst_case(observed, n, margin)


def _worst_case(observed: float, n: int, margin: float) -> float:
    """Largest probability, over all worlds where the gain is exactly ``-margin``, of a score at least as good."""
    fixed, broken = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    inside = fixed + broken <= n
    fixed, broken = fixed[inside], broken[inside]
    delta = -margin
    b = -(fixed + broken) + delta * (2 * n - fixed + broken)
    q = (np.sqrt(b * b + 8 * n * broken * delta * (1 - delta)) - b) / (4 * n)
    score = (fixed - broken - n * delta) / np.sqrt(n * (2 * q + delta * (1 - delta)))
    extreme = score >= observed - 1e-9
    fixed, broken = fixed[extreme], broken[extreme]
    same = n - fixed - broken
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + 1)))))
    ways = log_factorial[n] - log_factorial[fixed] - log_factorial[broken] - log_factorial[same]
    # The share of broken items runs from `margin` (nothing is ever fixed) to (1 + margin) / 2 (nothing stays the same).
    # The worst case lies near the low end for good outcomes, so the grid is dense there.
    shares = margin + (1 - margin) / 2 * np.linspace(0.0, 1.0, 81) ** 3
    return float(min(1.0, max(_mass(ways, fixed, broken, same, share, margin) for share in shares)))


def _mass(
    ways: np.ndarray, fixed: np.ndarray, broken: np.ndarray, same: np.ndarray, share: float, margin: float
) -> float:
    log_mass = ways + broken * math.log(share) + _times_log(fixed, share - margin)
    return float(np.exp(log_mass + _times_log(same, 1 - 2 * share + margin)).sum())


def _times_log(count: np.ndarray, probability: float) -> np.ndarray:
    """``count * log(probability)`` with ``0 * log(0) = 0``."""
    if probability > 1e-15:
        return np.asarray(count * math.log(probability))
    return np.where(count == 0, 0.0, -np.inf)


def items_for_non_inferiority(margin: float, alpha: float) -> int:
    """Fewest items with which a candidate that breaks and fixes nothing can be shown non-inferior.

    If the true loss were ``margin``, no broken item among n has probability ``(1 - margin)^n``.
    """
    return math.ceil(math.log(alpha) / math.log(1 - margin))


def detectable_gain(n: int, alpha: float, discordance: float, power: float = 0.8) -> float:
    """Smallest true gain that the one-sided paired test finds with probability ``power`` on ``n`` items.

    Args:
        discordance: share of items on which the two releases differ. Never below the gain itself.
    """
    if n < 1:
        return 1.0
    reach = _z(1 - alpha) + _z(power)
    return min(1.0, max(reach * math.sqrt(discordance / n), reach**2 / n))


def items_needed(gain: float, alpha: float, discordance: float, power: float = 0.8) -> int:
    """Items that the one-sided paired test needs to find a true ``gain``; also for a non-inferiority margin."""
    return math.ceil((_z(1 - alpha) + _z(power)) ** 2 * max(discordance, gain) / gain**2)


def _z(probability: float) -> float:
    return float(stats.norm.ppf(probability))
