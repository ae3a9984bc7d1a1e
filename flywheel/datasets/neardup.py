"""Near copies of short texts: MinHash and LSH propose pairs (rensa), exact Jaccard decides, union-find groups.

LSH alone is right for about half of its pairs, so every proposed pair is checked on the character 5-grams themselves.
Whether two texts are linked depends on those two alone, so clusters are the connected components of one fixed graph:
the same in any row order, on any machine and with any other texts beside them that link nothing.

rensa: https://github.com/beowolx/rensa; banding after Broder (1997) and Leskovec et al., "Mining of Massive Datasets",
section 3.4: a pair with Jaccard J meets in one of b bands of r rows with probability 1 - (1 - J^r)^b.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flywheel.datasets.prompts import normalise
from flywheel.store.digests import digest

GRAM = 5
PERMUTATIONS = 128
_SEED = 1
_RECALL = 0.999  # of pairs exactly at the threshold, which are the hardest to meet

IntArray = npt.NDArray[np.int64]


class DisjointSets:
    """Union-find over ``0..n-1``; the root of a set is its smallest member."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def find(self, item: int) -> int:
        """The smallest member of the item's set."""
        root = item
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[item] != root:
            self._parent[item], item = root, self._parent[item]
        return root

    def union(self, one: int, other: int) -> None:
        """Make two sets one."""
        low, high = sorted((self.find(one), self.find(other)))
        self._parent[high] = low

    def roots(self) -> list[int]:
        """The smallest member of each item's set, by item."""
        return [self.find(item) for item in range(len(self._parent))]


class Index:
    """Distinct texts, searchable for near copies.

    Args:
        texts: normalised here; doubles are fine.
        threshold: Jaccard of the sets of character 5-grams, in (0, 1], from which two texts are near copies. A text
            shorter than 5 characters is one gram, so it has exact copies only.
    """

    def __init__(self, texts: Iterable[str], *, threshold: float) -> None:
        import rensa

        self.threshold = threshold
        self.texts = sorted({normalise(text) for text in texts})
        grams = [_grams(text) for text in self.texts]
        self._vocabulary: dict[str, int] = {}
        for gram in sorted(set().union(*grams)):
            self._vocabulary[gram] = len(self._vocabulary)
        self._known = [self._ids(text_grams) for text_grams in grams]
        self._sizes = np.array([len(ids) for ids in self._known], dtype=np.int64)
        self._starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self._sizes)])
        self._flat = np.concatenate([np.zeros(0, dtype=np.int64), *self._known])
        self._lsh = rensa.RMinHashLSH(threshold, PERMUTATIONS, bands(threshold))
        self._lsh.insert_many(_sketches(grams), 0)

    def near(self, texts: Sequence[str]) -> list[list[int]]:
        """For each text the positions in ``self.texts`` of its near copies (itself too, if it is there), ascending."""
        grams = [_grams(normalise(text)) for text in texts]
        found = []
        for text_grams, sketch in zip(grams, _sketches(grams), strict=True):
            proposed = np.array(sorted(self._lsh.query(sketch)), dtype=np.int64)
            found.append(self._confirmed(self._ids(text_grams), len(text_grams), proposed).tolist())
        return found

    def components(self) -> list[int]:
        """For each of ``self.texts`` the position of the smallest text of its cluster."""
        sets = DisjointSets(len(self.texts))
        for position, sketch in enumerate(_sketches([_grams(text) for text in self.texts])):
            later = [other for other in self._lsh.query(sketch) if other > position]
            # Pairs that are joined already need no check: a flood of one template costs one check per text, not n.
            proposed = np.array([o for o in later if sets.find(o) != sets.find(position)], dtype=np.int64)
            for other in self._confirmed(self._known[position], int(self._sizes[position]), proposed).tolist():
                sets.union(position, other)
        return sets.roots()

    def _ids(self, grams: frozenset[str]) -> IntArray:
        return np.array([self._vocabulary[gram] for gram in grams if gram in self._vocabulary], dtype=np.int64)

    def _confirmed(self, known: IntArray, size: int, proposed: IntArray) -> IntArray:
        """Those of the proposed positions whose exact Jaccard with the text of grams ``known`` reaches the threshold.

        ``size`` counts all grams of that text, those outside the vocabulary too.
        """
        if not len(proposed):
            return proposed
        sizes = self._sizes[proposed]
        ends = np.cumsum(sizes)
        within = np.arange(ends[-1]) - np.repeat(ends - sizes, sizes)
        member = np.zeros(len(self._vocabulary), dtype=np.int64)
        member[known] = 1
        shared = np.add.reduceat(member[self._flat[np.repeat(self._starts[proposed], sizes) + within]], ends - sizes)
        # Division, not multiplication: the double nearest to 7/10 is the double that the text "0.7" reads as.
        return proposed[shared / (sizes + size - shared) >= self.threshold]


def clusters(texts: Sequence[str], *, threshold: float) -> list[int]:
    """Cluster ordinal of each text: exact copies (after normalising) and near copies, linked transitively.

    Ordinals count from 0 in order of each cluster's first text, so equal clusterings give equal lists. Which texts are
    together does not depend on their order. Raises nothing; an empty list gives an empty list.
    """
    ordinals: dict[str, int] = {}
    return [ordinals.setdefault(name, len(ordinals)) for name in _smallest(texts, threshold)]


def cluster_ids(texts: Sequence[str], *, threshold: float) -> list[str]:
    """As ``clusters``, but each cluster is named by a digest of its smallest text: stable across calls. 32 digits."""
    smallest = _smallest(texts, threshold)
    names = {name: digest(name)[:32] for name in set(smallest)}
    return [names[name] for name in smallest]


def near_any(texts: Sequence[str], corpus: Iterable[str], *, threshold: float) -> list[bool]:
    """Whether each text is a near copy (or copy) of any text of the corpus. Not transitive."""
    return [bool(found) for found in Index(corpus, threshold=threshold).near(texts)]


def bands(threshold: float) -> int:
    """How many LSH bands: the fewest, hence the most selective, that still meet 99.9 % of pairs at the threshold."""
    for rows in (32, 16, 8, 4, 2):
        count = PERMUTATIONS // rows
        if 1 - (1 - threshold**rows) ** count >= _RECALL:
            return count
    return PERMUTATIONS


def _smallest(texts: Sequence[str], threshold: float) -> list[str]:
    """The smallest text of each text's cluster."""
    if not texts:
        return []
    index = Index(texts, threshold=threshold)
    smallest = {text: index.texts[root] for text, root in zip(index.texts, index.components(), strict=True)}
    return [smallest[normalise(text)] for text in texts]


def _grams(text: str) -> frozenset[str]:
    return frozenset(text[start : start + GRAM] for start in range(max(1, len(text) - GRAM + 1)))


def _sketches(grams: Sequence[frozenset[str]]) -> list[Any]:
    import rensa

    sketches: list[Any] = rensa.RMinHash.from_token_sets(grams, PERMUTATIONS, _SEED)
    return sketches
