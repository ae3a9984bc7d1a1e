"""The firewall: what judges the model never teaches it.

Stopped are a held-out interaction itself, every row of a held-out conversation, every exact copy of a held-out prompt,
and every row in the near-duplicate cluster of one, unless that cluster is *large*: more than 0.5 % of the task's
traffic. A large cluster ("where is my order?") is what the model is for; keeping all of it out would leave nothing to
learn, so its near copies may train and the gate counts its items in the slice ``repeat`` only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from flywheel.datasets.neardup import Index
from flywheel.datasets.prompts import normalise
from flywheel.datasets.rows import Row, prompt_mac

LARGE_SHARE = 0.005
LARGE_FLOOR = 20
"""Interactions a cluster must exceed, however small the traffic: 0.5 % of 300 interactions would be two texts."""

WARN_SHARE = 0.10


@dataclass(frozen=True)
class HeldOut:
    """What must not train now: items of live suites and audited interactions that have not graduated.

    ``prompts`` are texts as ``prompt_text`` gives them.
    """

    interaction_ids: frozenset[str] = frozenset()
    conversation_ids: frozenset[str] = frozenset()
    prompts: tuple[str, ...] = ()


def is_large(interactions: int, traffic: int) -> bool:
    """Whether a cluster with this many of the task's ``traffic`` interactions may train although it is held out."""
    return interactions > max(LARGE_FLOOR, LARGE_SHARE * traffic)


class Firewall:
    """Says why a row must not train, if it must not.

    Args:
        held_out: see there.
        large: cluster ids that are large.
        clusters: cluster id of each held-out prompt.
        secret: the deployment's; a stored row may be redacted, and is then known by the keyed hash of its prompt.
    """

    def __init__(self, held_out: HeldOut, clusters: Sequence[str], large: Iterable[str], secret: bytes) -> None:
        self._held_out = held_out
        self._prompts = frozenset(normalise(prompt) for prompt in held_out.prompts)
        self._macs = frozenset(prompt_mac(secret, prompt) for prompt in self._prompts)
        self._clusters = frozenset(clusters) - frozenset(large)

    def reason(self, row: Row) -> str:
        """``held_out_{interaction,conversation,copy,near_copy}``, or ``""`` when the row may train."""
        # Choice k of an interaction is logged as `<id>#<k>`; it was asked the same and is held out with it.
        ids = {row.interaction_id, row.interaction_id.partition("#")[0]} - {""}
        if ids & self._held_out.interaction_ids:
            return "held_out_interaction"
        if row.conversation_id and row.conversation_id in self._held_out.conversation_ids:
            return "held_out_conversation"
        if row.text in self._prompts or row.prompt_mac in self._macs:
            return "held_out_copy"
        if row.cluster_id in self._clusters:
            return "held_out_near_copy"
        return ""


def large_clusters(
    members: dict[str, set[str]], traffic: Iterator[Sequence[str]], *, total: int, threshold: float
) -> set[str]:
    """Which clusters are large, by counting the task's interactions that are near copies of a member.

    Args:
        members: texts by cluster id, only of clusters on which something depends.
        traffic: prompt texts of all interactions, in chunks, so that memory does not grow with the traffic.
        total: how many interactions there are.
        threshold: as for the clusters.
    """
    if not members:
        return set()
    index = Index((text for texts in members.values() for text in texts), threshold=threshold)
    owner = {text: cluster for cluster, texts in members.items() for text in texts}
    sizes: Counter[str] = Counter()
    for chunk in traffic:
        counts = Counter(chunk)
        for found, count in zip(index.near(list(counts)), counts.values(), strict=True):
            for cluster in {owner[index.texts[position]] for position in found}:
                sizes[cluster] += count
    return {cluster for cluster, size in sizes.items() if is_large(size, total)}
