"""What the steps of an erasure share: where they work, on what, and what they find."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flywheel.erasure.scope import Scope
from flywheel.errors import StoreError
from flywheel.store.files import read_json
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction, schema

STONES = schema.tombstones


def readable(path: Path) -> dict[str, Any]:
    """A JSON object in a file. Raises StoreError when it is none: whose words it holds cannot be told then."""
    try:
        found = read_json(path)
    except ValueError as error:
        raise StoreError(f"{path}: not JSON any more; restore or remove it, then run this again") from error
    if not isinstance(found, dict):
        raise StoreError(f"{path}: no JSON object; restore or remove it, then run this again")
    return found


@dataclass
class Work:
    """One pass over a home.

    Args:
        apply: False only looks.
        live_log: whether to count the log file that a gateway is writing; it is never changed.
        counts: what was found, by kind; kept by the steps.
        datasets, suites: rows or items that go, by digest.
        taught: datasets of which rows go that were there to be learned.
    """

    home: Home
    registry: Registry
    scope: Scope
    tasks: list[str]
    erasure_id: str = ""
    apply: bool = False
    live_log: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    datasets: dict[str, int] = field(default_factory=dict)
    suites: dict[str, int] = field(default_factory=dict)
    taught: set[str] = field(default_factory=set)

    def buried(self, kind: str) -> set[str]:
        """Digests of this kind (``dataset``, ``suite``) that have, or in this pass would get, a tombstone."""
        with self.registry.read() as tx:
            found = {row["digest"] for row in tx.rows(sa.select(STONES.c.digest).where(STONES.c.kind == kind))}
        return found | (self.datasets if kind == "dataset" else self.suites).keys()

    def bury(
        self,
        tx: Transaction,
        kind: str,
        digest: str,
        *,
        task: str,
        successor: str | None,
        rows: int,
        train_rows: int = 0,
    ) -> None:
        """Note a tombstone in the registry; the first one of a dataset or suite stands."""
        mine = sa.and_(STONES.c.kind == kind, STONES.c.digest == digest)
        if tx.scalar(sa.select(STONES.c.digest).where(mine)) is None:
            row = {"kind": kind, "digest": digest, "task": task, "successor": successor, "rows_removed": rows}
            own = {"train_rows_removed": train_rows, "erasure_id": self.erasure_id}
            tx.execute(sa.insert(STONES).values(**row, **own, **tx.stamp()))
