"""Stage ``champion``: act on the decision. A promotion is made by ``flywheel.release`` or refused there."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.errors import PromotionRefused
from flywheel.gate import Decision, load_decision, retire
from flywheel.loops.claims import LOOPS, close
from flywheel.loops.context import LoopContext
from flywheel.loops.foreign import refuse_elsewhere
from flywheel.release.promotion import PromotionReport, promote
from flywheel.store.home import Home
from flywheel.store.registry import Registry


@dataclass(frozen=True)
class ChampionStage:
    """How the loop ended. ``promotion`` is None when the champion stays."""

    loop_id: str | None
    verdict: str
    reasons: list[str]
    decision: Decision
    promotion: PromotionReport | None


def champion_stage(ctx: LoopContext) -> ChampionStage:
    """Promote when the loop's decision says so, and close the loop either way.

    A rollback since the loop was claimed is a person's word that overrides the gate: nothing is promoted then, and the
    next loop starts from the release that was gone back to.

    Raises:
        PromotionRefused: there is no decision yet, or the world moved since it was made.
        ProbeFailed: a replica does not serve what was evaluated.
    """
    loop_id, attempt = ctx.lease.loop_id, ctx.lease.attempt
    digest = ctx.row()["decision"]
    if digest is None:
        raise PromotionRefused(f"{loop_id} has no decision record yet; materialise `evaluation` first")
    decision = load_decision(ctx.registry, digest)
    verdict, reasons = decision.verdict, decision.reasons
    promotion = None
    rolled_back = ctx.rolled_back()
    if rolled_back is not None:
        who = f"{rolled_back['actor']} at {rolled_back['at'][:19]}"
        verdict = "inconclusive"
        reasons = [
            f"the champion was rolled back by {who}, while this loop ran: its candidate is not promoted over that"
        ]
    elif decision.verdict == "promote":
        promotion = promote(
            ctx.config, ctx.home, ctx.registry, digest, loop=(loop_id, attempt), actor=ctx.registry.actor
        )
    with ctx.registry.write() as tx:
        close(tx, ctx.lease, verdict, reasons)
        if promotion is not None:
            retire(tx, ctx.task, loop_id)  # its gate items have done their work and may train from now on
    return ChampionStage(loop_id, verdict, reasons, decision, promotion)


def promote_latest(config: Config, home: Home, registry: Registry, task: str) -> ChampionStage:
    """Promote by the task's latest decision, as a person asks for by materialising `champion` alone.

    Raises PromotionRefused unless that decision allows it now: a rejected, used or outdated one does not; ConfigError
    when an engine that is not ours answers the task.
    """
    refuse_elsewhere(config, task)
    with registry.read() as tx:
        row = tx.row(
            sa.select(LOOPS.c.loop_id, LOOPS.c.decision)
            .where(LOOPS.c.task == task)
            .order_by(LOOPS.c.number.desc())
            .limit(1)
        )
    if row is None or row["decision"] is None:
        where = row["loop_id"] if row else f"task {task}"
        raise PromotionRefused(f"{where} has no decision record; only an evaluation judged by the gate makes one")
    decision = load_decision(registry, row["decision"])
    promotion = promote(config, home, registry, decision.digest, actor=registry.actor)
    with registry.write() as tx:
        retire(tx, task, row["loop_id"])
    return ChampionStage(row["loop_id"], decision.verdict, decision.reasons, decision, promotion)
