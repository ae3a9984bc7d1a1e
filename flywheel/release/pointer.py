"""The champion pointer: which release a task serves in this environment, moved only by compare-and-swap.

Every move is one transaction that changes ``champions`` and appends to ``promotions``; the version counts the moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.errors import PromotionRefused
from flywheel.release.releases import make_release
from flywheel.store.digests import short
from flywheel.store.registry import Registry, Transaction, schema

if TYPE_CHECKING:
    from flywheel.models import ModelDir

CHAMPIONS = schema.champions
PROMOTIONS = schema.promotions
Kind = Literal["initial", "promote", "rollback"]


@dataclass(frozen=True)
class Champion:
    """What the pointer says: a release digest and how often the pointer has moved."""

    release: str
    version: int


def champion(tx: Transaction, task: str, tenant: str = "") -> Champion | None:
    """The task's champion in the transaction's environment, or None before the first."""
    row = tx.row(
        sa.select(CHAMPIONS.c.release, CHAMPIONS.c.version).where(
            CHAMPIONS.c.environment == tx.environment, CHAMPIONS.c.task == task, CHAMPIONS.c.tenant == tenant
        )
    )
    return None if row is None else Champion(row["release"], row["version"])


def ensure_champion(registry: Registry, config: Config, task: str, model: ModelDir) -> Champion:
    """The task's champion; at a cold start the base release becomes it, as version 1.

    A champion that exists stays, also when the configuration has changed since: a new base or prompt is a candidate.
    """
    with registry.write() as tx:
        current = champion(tx, task)
        if current is not None:
            return current
        first = Champion(make_release(tx, config, task, model, None).digest, 1)
        where = {"task": task, "tenant": "", "release": first.release, "version": 1}
        tx.execute(sa.insert(CHAMPIONS).values(**where, **tx.stamp()))
        tx.execute(sa.insert(PROMOTIONS).values(**where, kind="initial", previous=None, **tx.stamp()))
        return first


def swap(
    tx: Transaction,
    task: str,
    *,
    expect: Champion,
    to: str,
    kind: Kind,
    decision: str | None = None,
    loop_id: str | None = None,
    tenant: str = "",
) -> Champion:
    """Move the pointer from ``expect`` to the release ``to``, if it still is where ``expect`` says.

    Returns the new champion, one version on. Raises PromotionRefused, saying where the pointer is, otherwise.
    """
    moved = Champion(to, expect.version + 1)
    hit = tx.execute(
        sa.update(CHAMPIONS)
        .where(
            CHAMPIONS.c.environment == tx.environment,
            CHAMPIONS.c.task == task,
            CHAMPIONS.c.tenant == tenant,
            CHAMPIONS.c.release == expect.release,
            CHAMPIONS.c.version == expect.version,
        )
        .values(release=moved.release, version=moved.version, actor=tx.actor, at=tx.stamp()["at"])
    )
    if hit != 1:
        raise PromotionRefused(moved_message(task, expect, champion(tx, task, tenant)))
    tx.execute(
        sa.insert(PROMOTIONS).values(
            task=task,
            tenant=tenant,
            version=moved.version,
            kind=kind,
            release=to,
            previous=expect.release,
            decision=decision,
            loop_id=loop_id,
            **tx.stamp(),
        )
    )
    return moved


def moved_message(task: str, expected: Champion, now: Champion | None) -> str:
    """The reason to give when the pointer is not where it was expected."""
    found = "task has no champion" if now is None else f"champion now is {short(now.release)} at version {now.version}"
    return (
        f"{task}: the champion has moved: expected {short(expected.release)} at pointer version {expected.version}, "
        f"but the {found}; evaluate against the present champion"
    )


def history(tx: Transaction, task: str, tenant: str = "") -> list[dict[str, Any]]:
    """All moves of the pointer in this environment, oldest first, as ``promotions`` rows."""
    return tx.rows(
        sa.select(PROMOTIONS)
        .where(PROMOTIONS.c.environment == tx.environment, PROMOTIONS.c.task == task, PROMOTIONS.c.tenant == tenant)
        .order_by(PROMOTIONS.c.version)
    )


def way_back(moves: list[dict[str, Any]]) -> list[str]:
    """The releases one can roll back through, the present champion last.

    The history read as an undo stack: a promotion is put on top; a rollback to a release in the stack takes off
    what lies above it; a rollback to one that is not ("forward again") puts it on top. So rolling back twice goes two
    promotions back, and never turns in a circle.
    """
    stack: list[str] = []
    for move in moves:
        if move["kind"] == "rollback" and move["release"] in stack:
            while stack[-1] != move["release"]:
                stack.pop()
        elif stack[-1:] != [move["release"]]:
            stack.append(move["release"])
    return stack
