"""Replicas: the live gateways of this registry, and the client that tells them what to load and route.

Desired state is the champion pointer. A replica writes what it routes into ``observed`` with each heartbeat, as
``{task: {"release": digest, "version": n}}``, and is live while its recorded process is.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import Any

import httpx
import sqlalchemy as sa

from flywheel.errors import ProbeFailed
from flywheel.release.pointer import CHAMPIONS
from flywheel.store.home import Home, boot_id, process_alive, process_started
from flywheel.store.registry import Transaction, schema

REPLICAS = schema.replicas
TOKEN_FILE = "operator.token"
LOAD_TIMEOUT_S = 300.0  # reading an adapter and eight probes on a busy machine
ROTATE_TIMEOUT_S = 60.0  # what is queued is written and synced first
ROUTE_TIMEOUT_S = 10.0  # one assignment; longer means the replica is stuck


@dataclass(frozen=True)
class Replica:
    """One registered gateway. ``observed`` maps a task to the ``release`` and pointer ``version`` it routes."""

    replica_id: str
    url: str
    pid: int
    state: str
    observed: dict[str, dict[str, Any]]
    at: str


def register(tx: Transaction, url: str, *, state: str = "starting") -> str:
    """Enter this process as a replica and drop the rows of dead ones. Returns the new replica's id."""
    clean(tx)
    replica_id, pid = f"r-{uuid.uuid4().hex[:16]}", os.getpid()
    row = {"replica_id": replica_id, "url": url, "pid": pid, "boot_id": boot_id(), "started": process_started(pid)}
    tx.execute(sa.insert(REPLICAS).values(**row, state=state, observed={}, **tx.stamp()))
    return replica_id


def heartbeat(tx: Transaction, replica_id: str, *, state: str, observed: dict[str, dict[str, Any]]) -> None:
    """Write what a replica does now: ``starting``, ``ready`` or ``stopped``, and what it routes."""
    changes = {"state": state, "observed": observed, "at": tx.stamp()["at"]}
    tx.execute(sa.update(REPLICAS).where(REPLICAS.c.replica_id == replica_id).values(**changes))


def unregister(tx: Transaction, replica_id: str) -> None:
    """Remove a replica that stops in good order."""
    tx.execute(sa.delete(REPLICAS).where(REPLICAS.c.replica_id == replica_id))


def clean(tx: Transaction) -> int:
    """Remove the rows of replicas that stopped or whose process is gone. Returns how many."""
    dead = [row["replica_id"] for row in _rows(tx) if not _alive(row)]
    for replica_id in dead:
        unregister(tx, replica_id)
    return len(dead)


def live(tx: Transaction) -> list[Replica]:
    """Replicas of this environment whose process runs, in a stable order; one that is starting is among them."""
    return [_replica(row) for row in _rows(tx) if _alive(row)]


def drift(tx: Transaction) -> list[dict[str, Any]]:
    """Desired against observed, per live replica and task: what ``flywheel status`` shows.

    Keys: replica_id, url, state, task, desired, desired_version, observed, observed_version, in_sync.
    """
    wanted = tx.rows(
        sa.select(CHAMPIONS)
        .where(CHAMPIONS.c.environment == tx.environment, CHAMPIONS.c.tenant == "")
        .order_by(CHAMPIONS.c.task)
    )
    table = []
    for replica in live(tx):
        for row in wanted:
            seen = replica.observed.get(row["task"], {})
            table.append(
                {
                    "replica_id": replica.replica_id,
                    "url": replica.url,
                    "state": replica.state,
                    "task": row["task"],
                    "desired": row["release"],
                    "desired_version": row["version"],
                    "observed": seen.get("release"),
                    "observed_version": seen.get("version"),
                    "in_sync": seen.get("release") == row["release"],
                }
            )
    return table


def operator_token(home: Home) -> str | None:
    """The token by which processes of this home speak to its gateway, or None when no gateway has written one."""
    try:
        return (home.root / TOKEN_FILE).read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


class ReplicaClient:
    """The operator's calls to one gateway. Every failure is a ProbeFailed that names the replica and the call.

    Args:
        url: the gateway's root, such as ``http://127.0.0.1:8000``.
        token: bearer token with the scope ``operate``; None for a gateway without keys.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # trust_env=False: a proxy of the environment must not come between processes of one machine.
        self._http = httpx.Client(base_url=url, headers=headers, trust_env=False)

    def __enter__(self) -> ReplicaClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def load(self, release: str) -> dict[str, Any]:
        """Load a release (by digest) under its immutable name, without routing to it."""
        return self._call("POST", "/admin/load", {"release": release}, LOAD_TIMEOUT_S)

    def probe(self, release: str) -> dict[str, Any]:
        """Prove that a loaded release is what was evaluated; a ProbeReport's fields."""
        return self._call("POST", "/admin/probe", {"release": release}, LOAD_TIMEOUT_S)

    def route(self, task: str) -> dict[str, Any]:
        """Make the replica follow the champion pointer of a task now; ``release`` and ``version`` it routes."""
        return self._call("POST", "/admin/route", {"task": task}, ROUTE_TIMEOUT_S)

    def unload(self, name: str) -> dict[str, Any]:
        """Drop a loaded release by name; requests that run on it finish first."""
        return self._call("POST", "/admin/unload", {"name": name}, ROUTE_TIMEOUT_S)

    def rotate(self) -> dict[str, Any]:
        """Close the log file that the replica writes; what is logged from now on goes into another."""
        return self._call("POST", "/admin/rotate", {}, ROTATE_TIMEOUT_S)

    def status(self) -> dict[str, Any]:
        """What the replica has loaded and routes."""
        return self._call("GET", "/admin/status", None, ROUTE_TIMEOUT_S)

    def _call(self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        where = f"replica {self.url}: {method} {path}"
        try:
            response = self._http.request(method, path, json=body, timeout=timeout_s)
        except httpx.HTTPError as error:
            raise ProbeFailed(f"{where}: no answer ({type(error).__name__})") from error
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if response.is_success and isinstance(answer, dict):
            return answer
        raise ProbeFailed(f"{where}: {response.status_code} {_reason(answer)}".rstrip())


def _reason(answer: Any) -> str:
    fault = answer.get("error") if isinstance(answer, dict) else None
    return str(fault.get("message", "")) if isinstance(fault, dict) else ""


def _rows(tx: Transaction) -> list[dict[str, Any]]:
    return tx.rows(sa.select(REPLICAS).where(REPLICAS.c.environment == tx.environment).order_by(REPLICAS.c.replica_id))


def _alive(row: dict[str, Any]) -> bool:
    return row["state"] != "stopped" and process_alive(row["boot_id"], row["pid"], row["started"])


def _replica(row: dict[str, Any]) -> Replica:
    return Replica(row["replica_id"], row["url"], row["pid"], row["state"], row["observed"], row["at"])
