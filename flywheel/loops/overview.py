"""What an operator asks first: what is served, what waits, and how the last turns ended."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.labels import last_seq
from flywheel.loops.claims import LOOPS, pending
from flywheel.release.pointer import champion
from flywheel.release.releases import get_release
from flywheel.release.replicas import live
from flywheel.store.digests import short
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.registry.erasures import tainted_checkpoints, unfinished_erasures


def overview(config: Config, registry: Registry, *, last_loops: int = 10) -> dict[str, Any]:
    """The state of every task: champion, replicas, pending labels and the last loops, as plain data."""
    with registry.read() as tx:
        replicas = live(tx)
        return {
            "environment": config.environment,
            "unfinished_erasures": unfinished_erasures(tx),
            "tasks": {
                task: {
                    "engine": settings.engine,
                    "champion": _champion(tx, task),
                    "replicas": [{"url": r.url, "state": r.state, "observed": r.observed.get(task)} for r in replicas],
                    "last_seq": last_seq(tx, task),
                    "pending_labels": pending(tx, task),
                    "min_labels": settings.trigger.min_labels,
                    "loops": [loop_view(tx, row) for row in _loops(tx, task, last_loops)],
                }
                for task, settings in config.tasks.items()
            },
        }


def loop_view(tx: Transaction, row: dict[str, Any]) -> dict[str, Any]:
    """One loop with what its stages made: dataset counts, evaluation summary, swap time."""
    manifest = _field(tx, schema.datasets.c.manifest, schema.datasets.c.digest, row["dataset"])
    summary = _field(tx, schema.evaluations.c.summary, schema.evaluations.c.digest, row["evaluation"])
    kept = ("digest", "rows", "dropped", "caps", "firewall", "labels")
    swap_ms = tx.scalar(
        sa.select(schema.promotions.c.swap_ms).where(
            schema.promotions.c.loop_id == row["loop_id"], schema.promotions.c.kind == "promote"
        )
    )
    names = ("loop_id", "number", "state", "attempt", "run_id", "from_seq", "to_seq", "verdict", "reasons")
    return {name: row[name] for name in names} | {
        "candidate": row["candidate"],
        "decision": row["decision"],
        "dataset": None if manifest is None else {key: manifest[key] for key in kept if key in manifest},
        "evaluation": summary,
        "swap_ms": swap_ms,
        "started_at": row["at"],
        "finished_at": row["finished_at"],
    }


def find_loop(tx: Transaction, loop_id: str) -> dict[str, Any] | None:
    """The row of a loop by id such as ``support_router/7``."""
    return tx.row(sa.select(LOOPS).where(LOOPS.c.loop_id == loop_id))


def _loops(tx: Transaction, task: str, last: int) -> list[dict[str, Any]]:
    return tx.rows(sa.select(LOOPS).where(LOOPS.c.task == task).order_by(LOOPS.c.number.desc()).limit(last))


def _champion(tx: Transaction, task: str) -> dict[str, Any] | None:
    current = champion(tx, task)
    if current is None:
        return None
    tainted = get_release(tx, current.release).checkpoint in tainted_checkpoints(tx, task)
    name = f"{task}@{short(current.release)}"
    return {"release": current.release, "name": name, "version": current.version, "tainted": tainted}


def _field(tx: Transaction, column: sa.Column[Any], key: sa.Column[Any], value: str | None) -> Any:
    return None if value is None else tx.scalar(sa.select(column).where(key == value))
