"""What follows a move of the champion pointer: the replicas flip, and the move is reported and measured."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import sqlalchemy as sa

from flywheel.errors import ProbeFailed
from flywheel.release.pointer import PROMOTIONS, Champion, swap
from flywheel.release.rollout import flip
from flywheel.store.digests import short
from flywheel.store.home import Home
from flywheel.store.registry import Registry

CONFIRM_S = 30.0


@dataclass(frozen=True)
class PromotionReport:
    """One move of the champion pointer.

    Attributes:
        release, previous: digests of the champion after and before.
        version: of the pointer after the move.
        swap_ms: from the pointer's move to the last replica's confirmation; None without a live replica.
        replicas: how many confirmed that they route to it. With none, a gateway follows the pointer when it starts.
        notes: calls that had to be repeated, replicas that died, and the like.
        completed: this call finished what an earlier, interrupted one began.
    """

    release: str
    previous: str
    version: int
    swap_ms: float | None
    replicas: int
    notes: tuple[str, ...] = ()
    completed: bool = False


def promotion_lock(home: Home, task: str) -> Path:
    """The lock file of a task's pointer moves: one is loading and flipping at a time, so that none unloads what
    another has just proved. Correctness across machines rests on the compare-and-swap alone."""
    return home.locks / f"promote-{task}.lock"


def settle(
    home: Home,
    registry: Registry,
    task: str,
    before: Champion,
    now: Champion,
    *,
    moved: float,
    confirm_s: float,
    undo_as: str | None,
) -> PromotionReport:
    """Flip the replicas after a move of the pointer and report.

    Args:
        moved: ``time.monotonic()`` of the move.
        undo_as: actor of the move back if a live replica does not confirm; None leaves the pointer where it is.
    """
    rollout = flip(registry, home, task, now, confirm_s=confirm_s)
    swap_ms = (time.monotonic() - moved) * 1000 if rollout.confirmed else None
    notes = [*rollout.notes, *(f"replica {name} died during the flip" for name in rollout.gone)]
    if rollout.unconfirmed and undo_as is not None:
        with registry.write() as tx:
            back = swap(replace(tx, actor=undo_as), task, expect=now, to=before.release, kind="rollback")
        flip(registry, home, task, back, confirm_s=0)
        raise ProbeFailed(
            f"{task}: {len(rollout.unconfirmed)} of the live replicas did not confirm the flip to "
            f"{short(now.release)} within {confirm_s:.0f} s; the promotion was undone, the pointer is back at "
            f"{short(before.release)}, version {back.version}. {'; '.join(rollout.notes)}"
        )
    notes += [f"replica {name} has not confirmed yet; it follows at its next heartbeat" for name in rollout.unconfirmed]
    _note_swap(registry, task, now.version, swap_ms)
    return PromotionReport(
        release=now.release,
        previous=before.release,
        version=now.version,
        swap_ms=swap_ms,
        replicas=len(rollout.confirmed),
        notes=tuple(notes),
    )


def _note_swap(registry: Registry, task: str, version: int, swap_ms: float | None) -> None:
    if swap_ms is None:
        return
    with registry.write() as tx:
        tx.execute(
            sa.update(PROMOTIONS)
            .where(
                PROMOTIONS.c.environment == tx.environment,
                PROMOTIONS.c.task == task,
                PROMOTIONS.c.version == version,
                PROMOTIONS.c.swap_ms.is_(None),
            )
            .values(swap_ms=swap_ms)
        )
