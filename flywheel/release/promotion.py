"""Promotion: the one way by which a candidate becomes the champion.

Order of events: the evidence is checked; every ready replica loads the candidate under its immutable name and is
probed; one transaction checks the evidence again, moves the pointer and uses up the decision; then every replica
flips its routing. What a crash leaves at each point:

- before the transaction: loaded adapters to which nothing routes, and a decision that is still good;
- after it: a pointer that replicas follow on their next heartbeat; the same loop may call ``promote`` again, which
  completes the flip and returns the report.

If a live replica cannot confirm the flip in time, the promotion is undone by a move back.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.errors import PromotionRefused
from flywheel.release.evidence import Attempt, examine, find_decision, made_champion
from flywheel.release.moves import CONFIRM_S, PromotionReport, promotion_lock, settle
from flywheel.release.pointer import Champion, swap
from flywheel.release.rollback import rollback
from flywheel.release.rollout import prove
from flywheel.store.digests import short
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.registry.schema import utc_now


def promote(
    config: Config,
    home: Home,
    registry: Registry,
    decision_digest: str,
    *,
    loop: Attempt | None = None,
    actor: str,
    confirm_s: float = CONFIRM_S,
) -> PromotionReport:
    """Make a decision's candidate the champion and have every live replica serve it.

    Args:
        loop: ``(loop_id, attempt)`` when a loop promotes; its attempt must be the current one.
        actor: who or what promotes, for the record.
        confirm_s: seconds until a replica that does not confirm its flip has the promotion undone.

    Raises:
        PromotionRefused: the evidence is missing, or the world has moved since; nothing changed.
        StaleAttempt: the loop's attempt is over; nothing changed.
        ProbeFailed: a replica does not serve what was evaluated (nothing changed), or could not confirm the flip (the
            pointer was moved back; the decision is used).
    """
    with registry.read() as tx:
        task = find_decision(tx, decision_digest)["task"]
    with locked(promotion_lock(home, task)):
        with registry.read() as tx:
            earlier = made_champion(tx, find_decision(tx, decision_digest), loop)
            evidence = None if earlier else examine(tx, config, home, decision_digest, loop)
        if evidence is None:
            assert earlier is not None
            return _complete(home, registry, earlier, confirm_s)
        prove(registry, home, evidence.candidate)
        with registry.write() as tx:
            mine = replace(tx, actor=actor)
            examine(mine, config, home, decision_digest, loop, files=False)
            now = swap(
                mine,
                task,
                expect=evidence.expect,
                to=evidence.candidate.digest,
                kind="promote",
                decision=decision_digest,
                loop_id=loop[0] if loop else None,
                tenant=evidence.decision["tenant"],
            )
            _use(mine, decision_digest)
        return settle(
            home, registry, task, evidence.expect, now, moved=time.monotonic(), confirm_s=confirm_s, undo_as=actor
        )


def _complete(home: Home, registry: Registry, move: dict[str, Any], confirm_s: float) -> PromotionReport:
    """Finish an interrupted promotion: flip again, and measure from the move's recorded time. The release was proved
    before the pointer moved, and a replica that started since has proved it before it served."""
    since_s = (datetime.fromisoformat(utc_now()) - datetime.fromisoformat(move["at"])).total_seconds()
    report = settle(
        home,
        registry,
        move["task"],
        Champion(move["previous"], move["version"] - 1),
        Champion(move["release"], move["version"]),
        moved=time.monotonic() - since_s,
        confirm_s=confirm_s,
        undo_as=None,
    )
    swap_ms = move["swap_ms"] if move["swap_ms"] is not None else report.swap_ms
    return replace(report, completed=True, swap_ms=swap_ms)


def _use(tx: Transaction, decision_digest: str) -> None:
    decisions = schema.decisions
    unused = (decisions.c.digest == decision_digest) & decisions.c.used_at.is_(None)
    if tx.execute(sa.update(decisions).where(unused).values(used_at=utc_now())) != 1:
        raise PromotionRefused(f"decision {short(decision_digest)} was used by another promotion just now")


__all__ = ["PromotionReport", "promote", "rollback"]
