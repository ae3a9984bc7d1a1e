"""How often a gate promotes a candidate that is no better, as a ratio to the rule "the mean is higher".

    python bench/gate.py [--gates 1000] [--loops 20] [--seed 0] [--json]

The peer is what a threshold on point estimates does (MLflow's `min_absolute_change`, TFX's `GenericChangeThreshold`):
promote when the candidate's accuracy on the same items is higher. Both judge the same simulated scores. Candidate and
champion differ on a fifth of the items, in favour of neither, so every promotion is a mistake; then the candidate
is truly better, so every promotion is right. ``--json`` prints one line of JSON last.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from flywheel.config import GatePolicy, SuitePolicy
from flywheel.evaluation.report import SuiteScores
from flywheel.gate.policy import judge

PEER = "promote when the mean is higher (MLflow min_absolute_change, TFX GenericChangeThreshold)"
DISCORDANCE = 0.2


def main() -> None:
    """Simulate and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gates", type=int, default=1000)
    parser.add_argument("--loops", type=int, default=20, help="loops in a row without a real gain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one line of JSON last")
    options = parser.parse_args()
    rng, started = np.random.default_rng(options.seed), time.perf_counter()
    print(f"{options.gates} simulated gates a row, releases differ on {100 * DISCORDANCE:.0f} % of items")
    print(f"{'items':>6} {'true gain':>10} {'flywheel':>10} {'mean higher':>12} {'ratio':>8}")
    ratios: dict[str, float] = {}
    for items in (100, 300):
        for gain in (-0.03, 0.0, 0.05, 0.10):
            ours, peer = promotions(rng, items, gain, options.gates)
            ratio = f"{ours / peer:8.3f}" if peer else "       -"
            if peer:
                ratios[f"promotions, {items} items, {100 * gain:+.0f} points"] = round(ours / peer, 3)
            print(f"{items:>6} {100 * gain:>+8.0f}pt {ours:>10.3f} {peer:>12.3f} {ratio}")
            if gain == 0.0:
                spoiled = [1 - (1 - rate) ** options.loops for rate in (ours, peer)]
                print(
                    f"       {options.loops} such loops promote junk: flywheel {spoiled[0]:.2f}, peer {spoiled[1]:.2f}"
                )
    print(f"{time.perf_counter() - started:.1f} s")
    if options.json:
        print(json.dumps({"benchmark": "gate", "peer": PEER, "ratios": ratios}))


def promotions(rng: np.random.Generator, items: int, gain: float, gates: int) -> tuple[float, float]:
    """Share of gates that our rule and the peer promote, on the same draws."""
    fixed, broken = (DISCORDANCE + gain) / 2, (DISCORDANCE - gain) / 2
    both = (1 - DISCORDANCE) * 0.7
    draws = rng.multinomial(items, [fixed, broken, both, 1 - DISCORDANCE - both], size=gates)
    policy, suites = GatePolicy(), SuitePolicy(gate_min=items)
    ours = sum(judge(policy, suites, _scores(*counts), None).verdict == "promote" for counts in draws.tolist())
    return ours / gates, float((draws[:, 0] > draws[:, 1]).mean())


def _scores(fixed: int, broken: int, right: int, wrong: int) -> SuiteScores:
    n = fixed + broken + right + wrong
    return SuiteScores(
        suite="",
        kind="gate",
        clusters=list(range(n)),
        slices=["novel"] * n,
        champion=[0] * fixed + [1] * broken + [1] * right + [0] * wrong,
        candidate=[1] * fixed + [0] * broken + [1] * right + [0] * wrong,
    )


if __name__ == "__main__":
    main()
