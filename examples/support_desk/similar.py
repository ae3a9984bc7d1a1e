"""Near copies among short texts: Jaccard similarity of character 5-grams, by exact prefix filtering.

The demo keeps its test messages apart from its traffic with this, in its own phrases and in a file of the user's.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

GRAM = 5


def grams(text: str) -> frozenset[str]:
    """Character 5-grams of the lower-cased text with single spaces; a shorter text is one gram."""
    plain = " ".join(text.lower().split())
    return frozenset(plain[i : i + GRAM] for i in range(max(1, len(plain) - GRAM + 1)))


def near_pairs(texts: Sequence[str], threshold: float) -> Iterator[tuple[int, int]]:
    """Every pair ``(i, j)``, ``i < j``, whose Jaccard similarity is at least ``threshold``.

    With each text's grams ordered from rare to frequent, two texts that similar share a gram among the first
    ``n - ceil(threshold * n) + 1`` of both (Bayardo et al. 2007), so only those are indexed and all finds are checked.
    """
    sets = [grams(text) for text in texts]
    frequency = Counter(gram for one in sets for gram in one)
    holders: dict[str, list[int]] = defaultdict(list)
    for j, one in enumerate(sets):
        ordered = sorted(one, key=lambda gram: (frequency[gram], gram))
        prefix = ordered[: len(one) - math.ceil(threshold * len(one)) + 1]
        for i in sorted({i for gram in prefix for i in holders[gram]}):
            other = sets[i]
            shared = len(one & other)
            if shared >= threshold * (len(one) + len(other) - shared):
                yield i, j
        for gram in prefix:
            holders[gram].append(j)


def clusters(texts: Sequence[str], threshold: float) -> list[int]:
    """Cluster number per text: texts joined by chains of near pairs share one (the least index among them)."""
    parent = list(range(len(texts)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in near_pairs(texts, threshold):
        low, high = sorted((root(i), root(j)))
        parent[high] = low
    return [root(i) for i in range(len(texts))]
