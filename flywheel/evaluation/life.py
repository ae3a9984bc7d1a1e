"""The life of a suite item: live, then graduated, once and for ever.

A live item judges and never trains. Gate items graduate when a candidate they judged is promoted, or when they have
judged as often as the policy allows; then they may train and never return to a suite. Golden items never graduate.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

import sqlalchemy as sa

from flywheel.datasets.firewall import HeldOut
from flywheel.datasets.prompts import prompt_text
from flywheel.evaluation.items import Suite, load_suite, read_golden_file
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.segments import query

ITEMS = schema.suite_items
SUITES = schema.suites


def graduated(registry: Registry, task: str) -> frozenset[str]:
    """Interactions whose time in a suite is over: they may train, and never judge again."""
    with registry.read() as tx:
        rows = tx.rows(sa.select(ITEMS.c.interaction_id).where(ITEMS.c.task == task, ITEMS.c.state == "graduated"))
    return frozenset(row["interaction_id"] for row in rows)


def live_suite(tx: Transaction, task: str, kind: str) -> str | None:
    """Digest of the suite of this kind that judges now, or None."""
    found = tx.scalar(
        sa.select(SUITES.c.digest).where(SUITES.c.task == task, SUITES.c.kind == kind, SUITES.c.state == "live")
    )
    return None if found is None else str(found)


def held_out(home: Home, registry: Registry, task: str, *, golden_file: str | None = None) -> HeldOut:
    """What must not train now: items of live suites, and every audited interaction that has not graduated.

    Audited interactions are held out before they have a label, since they may get one. So are the rows of an
    operator's ``golden_file``, also before the first loop has made a suite of them.
    """
    over = graduated(registry, task)
    with registry.read() as tx:
        names = [live_suite(tx, task, kind) for kind in ("gate", "golden")]
    items = [item for name in names if name is not None for item in load_suite(home, name).items]
    items = [item for item in items if item.interaction_id not in over]
    ids = {item.interaction_id for item in items}
    conversations = {item.conversation_id for item in items}
    prompts = {prompt_text(item.messages) for item in items}
    if golden_file is not None:
        prompts |= {prompt_text(messages) for messages, _, _ in read_golden_file(Path(golden_file))}
    sql = "SELECT interaction_id, conversation_id, request FROM rows WHERE audit ORDER BY interaction_id"
    for batch in query(home, registry, "interactions", task, sql).to_batches(max_chunksize=2000):
        for row in batch.to_pylist():
            if row["interaction_id"] not in over:
                ids.add(row["interaction_id"])
                conversations.add(row["conversation_id"])
                prompts.add(prompt_text(json.loads(row["request"])["messages"]))
    return HeldOut(frozenset(ids), frozenset(conversations) - {"", None}, tuple(sorted(prompts)))


def uses(tx: Transaction, task: str, interaction_ids: Collection[str]) -> dict[str, int]:
    """How often each live item has judged; graduated and unknown interactions are absent."""
    rows = tx.rows(sa.select(ITEMS.c.interaction_id, ITEMS.c.uses).where(ITEMS.c.task == task, ITEMS.c.state == "live"))
    return {row["interaction_id"]: row["uses"] for row in rows if row["interaction_id"] in interaction_ids}


def spend(tx: Transaction, suites: Sequence[Suite], max_uses: int) -> None:
    """Count one more use of suites and their items; gate items that have judged ``max_uses`` times graduate."""
    for suite in suites:
        tx.execute(sa.update(SUITES).where(SUITES.c.digest == suite.digest).values(uses=SUITES.c.uses + 1))
        _update(tx, suite.task, [item.interaction_id for item in suite.items], uses=ITEMS.c.uses + 1)
    worn = sa.and_(ITEMS.c.kind == "gate", ITEMS.c.state == "live", ITEMS.c.uses >= max_uses)
    for task in {suite.task for suite in suites}:
        tx.execute(sa.update(ITEMS).where(worn, ITEMS.c.task == task).values(state="graduated", **tx.stamp()))


def retire(tx: Transaction, task: str, loop_id: str | None) -> int:
    """Graduate the gate items of a promoted loop, and those that earlier loops left behind; returns how many.

    Their window is behind the new champion, so they could never judge again. ``None`` (a promotion outside any loop)
    graduates every live gate item: all were drawn for the champion that has just been replaced.
    """
    live = tx.rows(
        sa.select(ITEMS.c.interaction_id, ITEMS.c.loop_id).where(
            ITEMS.c.task == task, ITEMS.c.kind == "gate", ITEMS.c.state == "live"
        )
    )
    over = [row["interaction_id"] for row in live if loop_id is None or _number(row["loop_id"]) <= _number(loop_id)]
    _update(tx, task, over, state="graduated", **tx.stamp())
    gate = sa.and_(SUITES.c.task == task, SUITES.c.kind == "gate", SUITES.c.state == "live")
    if len(over) == len(live):
        tx.execute(sa.update(SUITES).where(gate).values(state="retired"))
    return len(over)


def _number(loop_id: str | None) -> int:
    """``7`` of ``support_router/7``; an id without a number counts as earlier than all."""
    tail = (loop_id or "").rpartition("/")[2]
    return int(tail) if tail.isdigit() else -1


def _update(tx: Transaction, task: str, interaction_ids: Sequence[str], **values: object) -> None:
    for start in range(0, len(interaction_ids), 500):  # SQLite bounds the variables of one statement
        some = ITEMS.c.interaction_id.in_(interaction_ids[start : start + 500])
        tx.execute(sa.update(ITEMS).where(ITEMS.c.task == task, some).values(**values))
