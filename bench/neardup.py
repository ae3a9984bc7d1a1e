"""Near-duplicate clusters: rensa with an exact check, against comparing all pairs of Python sets.

    python bench/neardup.py [--texts 2000] [--json]

Both give the same clusters (checked); the figure is the ratio of their times in this run. ``--json`` prints one line of
JSON last.
"""

from __future__ import annotations

import argparse
import json
import random
import time

from flywheel.datasets.neardup import GRAM, DisjointSets, clusters
from flywheel.datasets.prompts import normalise

PEER = "all pairs of Python sets"
THRESHOLD = 0.7
OPENINGS = ("hello,", "hi there,", "good morning,", "please help:", "quick question:", "urgent!", "sorry to ask, but")
THINGS = (
    "parcel",
    "refund",
    "card",
    "invoice",
    "password",
    "delivery",
    "subscription",
    "voucher",
    "account",
    "receipt",
)
FAULTS = ("never came", "is wrong", "was charged twice", "has expired", "got lost", "does not work", "was sent back")
ENDINGS = ("what now?", "can you look into it?", "I need it by friday.", "this is the second time.", "thank you.")


def made_up(count: int, seed: int = 7) -> list[str]:
    """Support messages: a few parts in many combinations, numbers, and one in ten an edited copy of an earlier one."""
    rng = random.Random(seed)
    texts: list[str] = []
    while len(texts) < count:
        if texts and rng.random() < 0.1:
            texts.append(rng.choice(texts) + rng.choice("!?."))
            continue
        parts = [rng.choice(OPENINGS), "my", rng.choice(THINGS), str(rng.randrange(10**6)), rng.choice(FAULTS)]
        texts.append(" ".join([*parts, "and the", rng.choice(THINGS), rng.choice(FAULTS), "too.", rng.choice(ENDINGS)]))
    return texts


def all_pairs(texts: list[str], threshold: float) -> list[int]:
    """The same clusters by the definition: every pair of gram sets compared."""
    whole = [normalise(text) for text in texts]
    grams = [{text[i : i + GRAM] for i in range(max(1, len(text) - GRAM + 1))} for text in whole]
    sets = DisjointSets(len(texts))
    for i, one in enumerate(grams):
        for j in range(i):
            shared = len(one & grams[j])
            if shared / (len(one) + len(grams[j]) - shared) >= threshold:
                sets.union(i, j)
    ordinals: dict[int, int] = {}
    return [ordinals.setdefault(root, len(ordinals)) for root in sets.roots()]


def main() -> None:
    """Print the times, the ratio and the cluster counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--json", action="store_true", help="print one line of JSON last")
    options = parser.parse_args()
    count: int = options.texts
    texts = made_up(count)
    clusters(texts[:10], threshold=THRESHOLD)  # imports are not what is measured
    start = time.perf_counter()
    ours = clusters(texts, threshold=THRESHOLD)
    ours_s = time.perf_counter() - start
    start = time.perf_counter()
    theirs = all_pairs(texts, THRESHOLD)
    theirs_s = time.perf_counter() - start
    if ours != theirs:
        differ = sum(a != b for a, b in zip(ours, theirs, strict=True))
        raise SystemExit(f"the clusters differ in {differ} of {count} texts")
    print(f"{count} texts, {len(set(ours))} clusters, the same in both")
    ratio = theirs_s / ours_s
    print(f"rensa + exact check {ours_s:.3f} s, {PEER} {theirs_s:.3f} s: {ratio:.1f} times faster")
    if options.json:
        print(json.dumps({"benchmark": "neardup", "peer": PEER, "ratios": {f"{count} texts": round(ratio, 2)}}))


if __name__ == "__main__":
    main()
