"""Which rows stay when there are more than wanted: fewer of what is common, all of what is rare.

A stratum is what one would want to know the model's accuracy on: the target where targets repeat, as queues and intents
do, and the near-duplicate cluster where every answer is its own. Each stratum keeps as many rows as the square root of
its size asks for, so that one a hundred times as common has ten times as many (sampling between natural and uniform,
as with languages in multilingual models: Conneau & Lample 2019, https://arxiv.org/abs/1901.07291, section 3.1).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from flywheel.datasets.rows import Row

REPEATING = 0.5
"""Distinct targets per row, at most, for targets to be strata."""


def select(rows: Sequence[Row], most: int) -> tuple[list[Row], Counter[str]]:
    """At most ``most`` rows, the heaviest of each stratum; reason ``beyond_selection`` for the others."""
    if len(rows) <= most:
        return list(rows), Counter()
    strata = _strata(rows)
    quotas = _quotas({name: len(members) for name, members in strata.items()}, most)
    kept = []
    for name, members in strata.items():
        kept += sorted(members, key=lambda row: row.preference)[: quotas[name]]
    kept.sort(key=lambda row: row.example_id)
    return kept, Counter({"beyond_selection": len(rows) - len(kept)})


def _strata(rows: Sequence[Row]) -> dict[str, list[Row]]:
    repeating = len({row.target for row in rows}) <= REPEATING * len(rows)
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.target if repeating else row.cluster_id or row.example_id].append(row)
    return found


def _quotas(sizes: dict[str, int], most: int) -> dict[str, int]:
    """Rows of each stratum: c * sqrt(size), but never more than there are, with c so that they add up to ``most``.

    Fractions go to the strata that lose most by rounding, the smallest first among equals.
    """
    order = sorted(sizes, key=lambda name: (sizes[name], name))
    wanted: dict[str, float] = {}
    left, roots = float(most), math.fsum(math.sqrt(size) for size in sizes.values())
    for name in order:
        # Smallest first: a stratum that is kept whole leaves more to those that are not.
        share = min(float(sizes[name]), left * math.sqrt(sizes[name]) / roots)
        wanted[name] = share
        left -= share
        roots -= math.sqrt(sizes[name])
    quotas = {name: math.floor(share) for name, share in wanted.items()}
    spare = most - sum(quotas.values())
    for name in sorted(order, key=lambda name: (quotas[name] - wanted[name], sizes[name], name)):
        if spare and quotas[name] < sizes[name]:
            quotas[name] += 1
            spare -= 1
    return quotas
