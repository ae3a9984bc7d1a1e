"""What every stage of a loop needs: the deployment, the task and the lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config, TaskConfig
from flywheel.loops.claims import LOOPS, Lease
from flywheel.release.pointer import Champion, champion, history
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

    def champion(self) -> Champion | None:
        """The champion that this loop sets out from.

        That is the present one. A loop that died right after it had moved the pointer sets out from the one before: so
        its next attempt finds all it has made and only completes the promotion, instead of training once more.
        """
        with self.registry.read() as tx:
            moves = history(tx, self.task)
            if moves and moves[-1]["kind"] == "promote" and moves[-1]["loop_id"] == self.lease.loop_id:
                return Champion(moves[-1]["previous"], moves[-1]["version"] - 1)
            return champion(tx, self.task)

    def rolled_back(self) -> dict[str, Any] | None:
        """The rollback that happened since this loop was claimed, as a ``promotions`` row, or None."""
        claimed = self.row()["at"]
        with self.registry.read() as tx:
            moves = [move for move in history(tx, self.task) if move["kind"] == "rollback" and move["at"] > claimed]
        return moves[-1] if moves else None


@dataclass(frozen=True)
class Ended:
    """A loop that ended early, with its verdict and why."""

    verdict: str
    reasons: list[str]
