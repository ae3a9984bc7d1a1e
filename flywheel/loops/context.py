"""What every stage of a loop needs: the deployment, the task and the lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config, TaskConfig
from flywheel.loops.claims import LOOPS, Lease
from flywheel.store.home import Home
from flywheel.store.registry import Registry


@dataclass(frozen=True)
class LoopContext:
    """One attempt of one loop, inside one open deployment."""

    config: Config
    home: Home
    registry: Registry
    lease: Lease

    @property
    def task(self) -> str:
        """The task's name."""
        return self.lease.task

    @property
    def policy(self) -> TaskConfig:
        """The task's configuration."""
        return self.config.task(self.lease.task)

    def row(self) -> dict[str, Any]:
        """The loop's row as it is now."""
        with self.registry.read() as tx:
            row = tx.row(sa.select(LOOPS).where(LOOPS.c.loop_id == self.lease.loop_id))
        assert row is not None, self.lease
        return row


@dataclass(frozen=True)
class Ended:
    """A loop that ended early, with its verdict and why."""

    verdict: str
    reasons: list[str]
