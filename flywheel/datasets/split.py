"""Train and validation sides that share no user, no conversation and no near-duplicate cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from flywheel.datasets.neardup import DisjointSets
from flywheel.datasets.rows import Row
from flywheel.store.digests import digest


def split(rows: Sequence[Row], val_share: float) -> list[Row]:
    """The rows with ``side`` set; rows that are linked, directly or through others, stay together.

    Groups go to ``val`` in an order that is a hash of their smallest example id, each only if it brings the side
    closer to ``val_share`` of the rows. So the share is approximate, and there is no validation side at all when
    every group is more than twice as large as what is wanted (one user who wrote everything).
    """
    groups = components(rows)
    wanted = val_share * len(rows)
    chosen = 0
    sides: dict[str, str] = {}
    for group in sorted(groups, key=lambda group: digest(["side", min(row.example_id for row in group)])):
        # The last group stays: a dataset with nothing to train on is of no use.
        val = len(group) < 2 * (wanted - chosen) and chosen + len(group) < len(rows)
        chosen += len(group) if val else 0
        sides.update({row.example_id: "val" if val else "train" for row in group})
    return [replace(row, side=sides[row.example_id]) for row in rows]


def components(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows linked by a user, a conversation or a cluster, transitively."""
    sets = DisjointSets(len(rows))
    first: dict[tuple[str, str], int] = {}
    for position, row in enumerate(rows):
        for link in links(row):
            sets.union(first.setdefault(link, position), position)
    grouped: dict[int, list[Row]] = defaultdict(list)
    for row, root in zip(rows, sets.roots(), strict=True):
        grouped[root].append(row)
    return list(grouped.values())


def links(row: Row) -> list[tuple[str, str]]:
    """What ties a row to others. Unknown users and conversations tie nothing."""
    ties = [("user", row.user_key), ("conversation", row.conversation_id), ("cluster", row.cluster_id)]
    return [(kind, value) for kind, value in ties if value]
