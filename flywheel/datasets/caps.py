"""Caps on what one user, and one near-duplicate cluster, may contribute to a dataset.

Both an absolute count and a share: a share alone lets a flood grow the dataset that it is a share of, and a count alone
lets a few users own a small one (a fixed number of poisoned examples is enough to steer a model, whatever the size).
Each kind of row has caps of its own, as each is learned by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from flywheel.config import DataPolicy
from flywheel.datasets.rows import ANONYMOUS, KINDS, SFT, Row

PER_USER_AND_CLUSTER = 3
SMALLEST_SHARE_CAP = 5
"""Rows one user, or cluster, may always have unless the absolute cap is less: 2 % of a first loop's 60 rows would be
one."""


@dataclass
class Quota:
    """Admits rows one by one until a user, a cluster, or a user in a cluster is full."""

    per_user: int
    per_cluster: int
    _users: Counter[str] = field(default_factory=Counter)
    _clusters: Counter[str] = field(default_factory=Counter)
    _both: Counter[tuple[str, str]] = field(default_factory=Counter)

    def refusal(self, row: Row) -> str:
        """Why the row is one too many, or ``""``; an admitted row is counted. Anonymous rows have no user to cap."""
        both = (row.user_key, row.cluster_id)
        if row.user_key != ANONYMOUS:
            if self._both[both] >= PER_USER_AND_CLUSTER:
                return "user_cluster_cap"
            if self._users[row.user_key] >= self.per_user:
                return "user_cap"
        if self._clusters[row.cluster_id] >= self.per_cluster:
            return "cluster_cap"
        self._users[row.user_key] += 1
        self._clusters[row.cluster_id] += 1
        self._both[both] += 1
        return ""


@dataclass(frozen=True)
class Capped:
    """Rows within the caps, and who was held back."""

    rows: list[Row]
    dropped: Counter[str]
    per_user: int  # the cap that held for ``sft`` rows
    users: int  # users that lost rows to a cap
    quota: Quota  # as filled by the ``sft`` rows; replay goes on from here


def cap(rows: Iterable[Row], policy: DataPolicy) -> Capped:
    """Apply the caps to each kind of row; which rows stay depends on weight and digest, not on order.

    A share is of the rows that stay, so a cap is the largest c with c <= max(floor, ceil(share * kept(c))) that is not
    above the absolute one: lowering c lowers what is kept, which may lower c again.
    """
    ordered = sorted(rows, key=lambda row: row.preference)
    found = {kind: _cap([row for row in ordered if row.kind == kind], policy) for kind in KINDS}
    return Capped(
        rows=sorted((row for one in found.values() for row in one.rows), key=lambda row: row.example_id),
        dropped=sum((one.dropped for one in found.values()), Counter[str]()),
        per_user=found[SFT].quota.per_user,
        users=len(set().union(*(one.held_back for one in found.values()))),
        quota=found[SFT].quota,
    )


@dataclass(frozen=True)
class _Admitted:
    rows: list[Row]
    dropped: Counter[str]
    held_back: set[str]  # users that lost rows
    quota: Quota


def _cap(ordered: list[Row], policy: DataPolicy) -> _Admitted:
    per_user, per_cluster = policy.max_per_user, policy.max_per_cluster
    while True:
        result = _admit(ordered, Quota(per_user, per_cluster))
        kept = len(result.rows)
        lower = (
            min(per_user, _share(policy.max_user_share, kept)),
            min(per_cluster, _share(policy.max_cluster_share, kept)),
        )
        if lower == (per_user, per_cluster):
            return result
        per_user, per_cluster = lower


def _share(share: float, kept: int) -> int:
    return max(SMALLEST_SHARE_CAP, math.ceil(share * kept))


def _admit(ordered: list[Row], quota: Quota) -> _Admitted:
    kept: list[Row] = []
    dropped: Counter[str] = Counter()
    held_back: set[str] = set()
    for row in ordered:
        reason = quota.refusal(row)
        if not reason:
            kept.append(row)
            continue
        dropped[reason] += 1
        if reason != "cluster_cap":
            held_back.add(row.user_key)
    return _Admitted(kept, dropped, held_back, quota)


def largest_user_share(rows: Iterable[Row]) -> float:
    """The largest share of rows that one known user has; 0 when none is known."""
    users = Counter(row.user_key for row in rows)
    total = users.total()
    users.pop(ANONYMOUS, None)
    return max(users.values(), default=0) / total if total else 0.0
