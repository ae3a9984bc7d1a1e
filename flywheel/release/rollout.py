"""Bringing replicas from one release to another: load and prove everywhere first, then flip and confirm."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from flywheel.errors import ProbeFailed
from flywheel.release.pointer import Champion
from flywheel.release.probe import ProbeReport
from flywheel.release.releases import Release
from flywheel.release.replicas import Replica, ReplicaClient, live, operator_token
from flywheel.store.home import Home
from flywheel.store.registry import Registry

RETRY_S = 0.25


@dataclass
class Rollout:
    """What became of a flip: replicas that confirmed it, that died meanwhile, and that did neither in time."""

    confirmed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    unconfirmed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def ready_replicas(registry: Registry) -> list[Replica]:
    """Live replicas that serve. One that is still starting follows the pointer by itself before it serves."""
    with registry.read() as tx:
        return [replica for replica in live(tx) if replica.state == "ready"]


def prove(registry: Registry, home: Home, release: Release) -> list[Replica]:
    """Load and probe a release on every ready replica. Nothing is routed to it yet.

    Returns the replicas that passed. A replica whose process died meanwhile does not count. Raises ProbeFailed when
    one fails; the release is unloaded everywhere then.
    """
    replicas = ready_replicas(registry)
    token = operator_token(home)
    passed: list[Replica] = []
    for replica in replicas:
        try:
            with ReplicaClient(replica.url, token) as client:
                client.load(release.digest)
                report = ProbeReport.from_json(client.probe(release.digest))
            if not report.passed:
                why = "; ".join(report.failures) or "no reason given"
                raise ProbeFailed(f"replica {replica.url} does not serve {release.name} as evaluated: {why}")
        except ProbeFailed:
            if not _still_there(registry, replica):
                continue
            _unload(replicas, token, release.name)
            raise
        passed.append(replica)
    return passed


def flip(registry: Registry, home: Home, task: str, want: Champion, *, confirm_s: float) -> Rollout:
    """Tell every ready replica to follow the pointer, and wait until each says that it routes ``want``.

    A failed call is repeated until ``confirm_s`` seconds are over; the replica's own reconciliation may be what
    confirms it. Never raises for a replica.
    """
    token, rollout, deadline = operator_token(home), Rollout(), time.monotonic() + confirm_s
    pending = ready_replicas(registry)
    while pending:
        left: list[Replica] = []
        for replica in pending:
            trouble = _route(replica, token, task, want)
            if trouble is None:
                rollout.confirmed.append(replica.replica_id)
            elif not _still_there(registry, replica):
                rollout.gone.append(replica.replica_id)
            else:
                left.append(replica)
                if trouble not in rollout.notes:
                    rollout.notes.append(trouble)
        if left and time.monotonic() >= deadline:
            rollout.unconfirmed = [replica.replica_id for replica in left]
            break
        pending = left
        if pending:
            time.sleep(RETRY_S)
    return rollout


def _route(replica: Replica, token: str | None, task: str, want: Champion) -> str | None:
    try:
        with ReplicaClient(replica.url, token) as client:
            answer = client.route(task)
    except ProbeFailed as error:
        return str(error)
    if answer.get("release") == want.release:
        return None
    return f"replica {replica.url} still routes {task} to {answer.get('release')}"


def _still_there(registry: Registry, replica: Replica) -> bool:
    return any(other.replica_id == replica.replica_id for other in ready_replicas(registry))


def _unload(replicas: Sequence[Replica], token: str | None, name: str) -> None:
    for replica in replicas:
        try:
            with ReplicaClient(replica.url, token) as client:
                client.unload(name)
        except ProbeFailed:
            continue  # a replica that cannot be told keeps an idle adapter, to which nothing routes
