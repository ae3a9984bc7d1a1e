"""The ``loops`` table: which window of label versions a turn covers, and who holds it.

A loop is claimed for the label versions ``(from_seq, to_seq]``. ``from_seq`` is what the champion has learned, so that
a rejected loop loses no labels. Whoever runs it enters it with its attempt number; every later write names that attempt
and run, so that a process which was given up for dead cannot write after all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from flywheel.errors import HomeBusy, StaleAttempt
from flywheel.labels import last_seq
from flywheel.release.pointer import champion
from flywheel.store.home import boot_id, process_alive, process_started
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.registry.erasures import refuse_while_erasing, unfinished_erasures
from flywheel.store.registry.schema import utc_now

MAX_ATTEMPTS = 3
LOOPS = schema.loops
OPEN_STATES = ("claimed", "running")


@dataclass(frozen=True)
class Loop:
    """One row of the ``loops`` table that is open."""

    loop_id: str
    task: str
    from_seq: int
    to_seq: int
    attempt: int
    state: str

    @property
    def run_key(self) -> str:
        """What Dagster deduplicates runs by: one per attempt."""
        return f"{self.loop_id}#{self.attempt}"


@dataclass(frozen=True)
class Lease:
    """The right to write for one attempt of a loop, held by one run."""

    loop_id: str
    task: str
    attempt: int
    run_id: str


def learned_seq(tx: Transaction, task: str) -> int:
    """The last label version that the current champion has learned; 0 for the base model."""
    current = champion(tx, task)
    if current is None:
        return 0
    mine = sa.and_(LOOPS.c.task == task, LOOPS.c.candidate == current.release)
    return int(tx.scalar(sa.select(sa.func.max(LOOPS.c.to_seq)).where(mine)) or 0)


def pending(tx: Transaction, task: str) -> int:
    """Label versions that no loop has looked at: since the last finished or given-up loop's window."""
    seen = tx.scalar(
        sa.select(sa.func.max(LOOPS.c.to_seq)).where(LOOPS.c.task == task, LOOPS.c.state.in_(("finished", "failed")))
    )
    return last_seq(tx, task) - int(seen or 0)


def open_loop(tx: Transaction, task: str) -> dict[str, Any] | None:
    """The task's claimed or running loop, as a row."""
    return tx.row(sa.select(LOOPS).where(LOOPS.c.task == task, LOOPS.c.state.in_(OPEN_STATES)))


def claim(registry: Registry, task: str, *, min_labels: int) -> Loop | None:
    """The task's open loop, or a new one when at least ``min_labels`` label versions wait; else None.

    None, too, while an erasure is unfinished: no run could enter the loop. Safe to call from any number of processes
    at once: the write transaction orders them.
    """
    with registry.write() as tx:
        if unfinished_erasures(tx):
            return None
        row = open_loop(tx, task)
        if row is None:
            if pending(tx, task) < min_labels:
                return None
            row = _insert(tx, task)
        return _loop(row)


def enter(
    registry: Registry,
    task: str,
    run_id: str,
    *,
    loop_id: str | None = None,
    attempt: int | None = None,
    may_open: bool = True,
) -> Lease:
    """Take the lease of a loop for a run.

    Args:
        run_id: the Dagster run, or any unique name; entering again with the same one is fine.
        loop_id, attempt: what the run was started for. Without them the run joins the task's open loop.
        may_open: without an open loop, open one over whatever is pending.

    Raises:
        StaleAttempt: the attempt is over or was never this loop's, or no loop is open and none may be opened.
        HomeBusy: another live process runs this loop, or an erasure is unfinished.
    """
    with registry.write() as tx:
        refuse_while_erasing(tx, f"a loop of {task} cannot run now")
        if loop_id is None:
            current = open_loop(tx, task)
            if current is None and not may_open:
                raise StaleAttempt(f"{task}: no loop is open; start one by materialising `dataset` or the loop job")
            row = current or _insert(tx, task)
        else:
            found = tx.row(sa.select(LOOPS).where(LOOPS.c.loop_id == loop_id, LOOPS.c.task == task))
            if found is None:
                raise StaleAttempt(f"{loop_id}: no such loop of task {task}")
            row = found
            if row["attempt"] != attempt or row["state"] not in OPEN_STATES:
                raise StaleAttempt(
                    f"{loop_id}: attempt {attempt} is over; the loop is {row['state']} at attempt {row['attempt']}"
                )
        if row["state"] == "running" and row["run_id"] != run_id and runner_alive(row):
            raise HomeBusy(f"{row['loop_id']} is being run by run {row['run_id']} (pid {row['pid']}); wait for it")
        pid = os.getpid()
        tx.execute(
            sa.update(LOOPS)
            .where(LOOPS.c.loop_id == row["loop_id"])
            .values(state="running", run_id=run_id, pid=pid, boot_id=boot_id(), started=process_started(pid))
        )
        return Lease(row["loop_id"], task, row["attempt"], run_id)


def runner_alive(row: dict[str, Any]) -> bool:
    """Whether the process that entered a loop still runs on this machine."""
    return row["pid"] is not None and process_alive(row["boot_id"], row["pid"], row["started"] or "")


def held(tx: Transaction, lease: Lease) -> dict[str, Any]:
    """The loop's row, if the lease still holds; StaleAttempt otherwise. Call it inside the transaction that writes."""
    row = tx.row(sa.select(LOOPS).where(LOOPS.c.loop_id == lease.loop_id))
    if row is None or row["attempt"] != lease.attempt or row["run_id"] != lease.run_id or row["state"] != "running":
        now = "gone" if row is None else f"{row['state']} at attempt {row['attempt']} by run {row['run_id']}"
        raise StaleAttempt(f"{lease.loop_id}: attempt {lease.attempt} (run {lease.run_id}) lost its lease; it is {now}")
    return row


def record(registry: Registry, lease: Lease, **columns: Any) -> None:
    """Write a stage's result digest (``dataset=``, ``candidate=``, ``evaluation=``, ``decision=``) into the loop."""
    with registry.write() as tx:
        held(tx, lease)
        tx.execute(sa.update(LOOPS).where(LOOPS.c.loop_id == lease.loop_id).values(**columns))


def finish(registry: Registry, lease: Lease, verdict: str, reasons: list[str]) -> None:
    """Close the loop with its verdict."""
    with registry.write() as tx:
        close(tx, lease, verdict, reasons)


def close(tx: Transaction, lease: Lease, verdict: str, reasons: list[str]) -> None:
    """``finish`` inside a transaction that writes more."""
    held(tx, lease)
    tx.execute(
        sa.update(LOOPS)
        .where(LOOPS.c.loop_id == lease.loop_id)
        .values(state="finished", verdict=verdict, reasons=reasons, finished_at=utc_now())
    )


def give_up(registry: Registry, loop_id: str, attempt: int, reason: str) -> str:
    """End an attempt whose run failed or died: the next attempt is claimed, or after the last one the loop fails.

    Returns the loop's state afterwards: ``claimed``, ``failed``, or what it already was when the attempt was over.
    """
    with registry.write() as tx:
        row = tx.row(sa.select(LOOPS).where(LOOPS.c.loop_id == loop_id))
        if row is None or row["attempt"] != attempt or row["state"] not in OPEN_STATES:
            return "gone" if row is None else str(row["state"])
        last = attempt >= MAX_ATTEMPTS
        changes: dict[str, Any] = {"reasons": [*row["reasons"], f"attempt {attempt}: {reason}"], "pid": None}
        if last:
            changes |= {"state": "failed", "finished_at": utc_now()}
        else:
            changes |= {"state": "claimed", "attempt": attempt + 1}
        tx.execute(sa.update(LOOPS).where(LOOPS.c.loop_id == loop_id).values(**changes))
        return str(changes["state"])


def live_loops(tx: Transaction) -> list[dict[str, Any]]:
    """Loops of all tasks that a live process runs."""
    return [row for row in tx.rows(sa.select(LOOPS).where(LOOPS.c.state == "running")) if runner_alive(row)]


def abandon(tx: Transaction, loop_id: str, reason: str) -> None:
    """Fail an open loop for good, without another attempt; the next loop's window includes its own."""
    row = tx.row(sa.select(LOOPS).where(LOOPS.c.loop_id == loop_id, LOOPS.c.state.in_(OPEN_STATES)))
    if row is not None:
        changes = {"state": "failed", "reasons": [*row["reasons"], reason], "pid": None, "finished_at": utc_now()}
        tx.execute(sa.update(LOOPS).where(LOOPS.c.loop_id == loop_id).values(**changes))


def _insert(tx: Transaction, task: str) -> dict[str, Any]:
    number = int(tx.scalar(sa.select(sa.func.max(LOOPS.c.number)).where(LOOPS.c.task == task)) or 0) + 1
    row: dict[str, Any] = {
        "loop_id": f"{task}/{number}",
        "task": task,
        "tenant": "",
        "number": number,
        "from_seq": learned_seq(tx, task),
        "to_seq": last_seq(tx, task),
        "attempt": 1,
        "state": "claimed",
        "run_id": None,
        "pid": None,
        "boot_id": None,
        "started": None,
        "reasons": [],
        **tx.stamp(),
    }
    tx.execute(sa.insert(LOOPS).values(**row))
    return row


def _loop(row: dict[str, Any]) -> Loop:
    return Loop(row["loop_id"], row["task"], row["from_seq"], row["to_seq"], row["attempt"], row["state"])
