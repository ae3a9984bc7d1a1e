"""Rollback: back to a release that was the champion before, and forward again.

It needs no decision, because what it serves was promoted once; who did it is recorded. Without a named target it goes
to the release that was the champion before the present one was promoted (see ``pointer.way_back``), passing over
those that have learned from erased rows.
"""

from __future__ import annotations

import time
from dataclasses import replace

from flywheel.config import Config
from flywheel.errors import PromotionRefused
from flywheel.release.evidence import check_checkpoint
from flywheel.release.moves import CONFIRM_S, PromotionReport, promotion_lock, settle
from flywheel.release.pointer import Champion, champion, history, swap, way_back
from flywheel.release.releases import Release, find_release, get_release
from flywheel.release.rollout import prove
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction
from flywheel.store.registry.erasures import tainted_checkpoints


def rollback(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    *,
    to: str | None = None,
    actor: str,
    confirm_s: float = CONFIRM_S,
) -> PromotionReport:
    """Serve an earlier champion again.

    Args:
        to: a release digest, its beginning, or ``task@beginning``; it may also be a later champion ("forward again").
            None: one promotion back.
        actor: who rolls back, for the record.
        confirm_s: seconds to wait for each live replica; one that stays silent is named in the report, and the pointer
            stays, since it is what the operator asked for.

    Raises:
        ConfigError: unknown task.
        PromotionRefused: nothing lies before the present champion, or the target never was one, is it already, or its
            checkpoint is damaged; nothing changed.
        ProbeFailed: a replica does not serve the target as it was evaluated; nothing changed.
    """
    config.task(task)
    with locked(promotion_lock(home, task)):
        with registry.read() as tx:
            target, before = _target(tx, task, to)
        check_checkpoint(home, target)
        prove(registry, home, target)
        with registry.write() as tx:
            now = swap(replace(tx, actor=actor), task, expect=before, to=target.digest, kind="rollback")
        return settle(home, registry, task, before, now, moved=time.monotonic(), confirm_s=confirm_s, undo_as=None)


def _target(tx: Transaction, task: str, to: str | None) -> tuple[Release, Champion]:
    now = champion(tx, task)
    if now is None:
        raise PromotionRefused(f"task {task} has no champion yet; start the gateway first")
    moves = history(tx, task)
    if to is None:
        before = [get_release(tx, release) for release in way_back(moves)[:-1]]
        if not before:
            raise PromotionRefused(f"task {task}: nothing was the champion before {get_release(tx, now.release).name}")
        tainted = tainted_checkpoints(tx, task)
        clean = [release for release in before if release.checkpoint not in tainted]
        if not clean:
            raise PromotionRefused(
                f"task {task}: every earlier champion has learned from erased rows; name one with --to to serve it all "
                "the same"
            )
        return clean[-1], now
    target = find_release(tx, task, to)
    if target.digest == now.release:
        raise PromotionRefused(f"{target.name} is the champion of task {task} already, at version {now.version}")
    if all(move["release"] != target.digest for move in moves):
        raise PromotionRefused(
            f"{target.name} never was the champion of task {task}, so it cannot be rolled back to; "
            "it needs a decision of the gate"
        )
    return target, now
