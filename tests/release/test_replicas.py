"""Replicas are known while their process runs, and the client says which call to which replica failed."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.errors import ProbeFailed
from flywheel.release.replicas import (
    ReplicaClient,
    clean,
    drift,
    heartbeat,
    live,
    operator_token,
    register,
    unregister,
)
from flywheel.store.home import boot_id, process_started
from flywheel.store.registry import schema


def _dead_process() -> tuple[int, str]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = process_started(child.pid)
    child.communicate(b"\n")
    return child.pid, started


def _pretend(world: Any, replica_id: str, **columns: Any) -> None:
    with world.registry.write() as tx:
        table = schema.replicas
        tx.execute(sa.update(table).where(table.c.replica_id == replica_id).values(**columns))


def _live(world: Any) -> list[str]:
    with world.registry.read() as tx:
        return [replica.replica_id for replica in live(tx)]


def test_a_registered_process_is_live_until_it_leaves(world: Any) -> None:
    with world.registry.write() as tx:
        mine = register(tx, "http://127.0.0.1:1")
    assert _live(world) == [mine]
    with world.registry.write() as tx:
        unregister(tx, mine)
    assert _live(world) == []


def test_a_heartbeat_changes_state_and_what_is_observed(world: Any) -> None:
    observed = {world.task: {"release": "d" * 64, "version": 1}}
    with world.registry.write() as tx:
        mine = register(tx, "http://127.0.0.1:1")
        heartbeat(tx, mine, state="ready", observed=observed)
    with world.registry.read() as tx:
        (found,) = live(tx)
    assert (found.state, found.observed, found.url) == ("ready", observed, "http://127.0.0.1:1")


@pytest.mark.parametrize("how", ["dead", "pid reused", "earlier boot", "stopped", "other environment"])
def test_what_no_longer_runs_is_not_live(world: Any, how: str) -> None:
    pid, started = _dead_process()
    with world.registry.write() as tx:
        mine = register(tx, "http://127.0.0.1:1")
    columns = {
        "dead": {"pid": pid, "started": started, "boot_id": boot_id()},
        "pid reused": {"started": "1"},
        "earlier boot": {"boot_id": "an earlier one"},
        "stopped": {"state": "stopped"},
        "other environment": {"environment": "staging"},
    }[how]
    _pretend(world, mine, **columns)
    assert _live(world) == []


def test_registering_drops_the_rows_of_the_dead_and_keeps_the_living(world: Any) -> None:
    with world.registry.write() as tx:
        kept = register(tx, "http://127.0.0.1:1")
        dead = register(tx, "http://127.0.0.1:2")
    _pretend(world, dead, boot_id="an earlier one")
    with world.registry.write() as tx:
        new = register(tx, "http://127.0.0.1:3")
        rows = tx.rows(sa.select(schema.replicas.c.replica_id))
        assert clean(tx) == 0
    assert {row["replica_id"] for row in rows} == {kept, new}


def test_drift_shows_desired_beside_observed(world: Any) -> None:
    now = world.champion()
    with world.registry.write() as tx:
        mine = register(tx, "http://127.0.0.1:1")
        heartbeat(tx, mine, state="ready", observed={world.task: {"release": "d" * 64, "version": 1}})
    with world.registry.read() as tx:
        (row,) = drift(tx)
    assert (row["desired"], row["observed"], row["in_sync"]) == (now.release, "d" * 64, False)
    with world.registry.write() as tx:
        heartbeat(tx, mine, state="ready", observed={world.task: {"release": now.release, "version": 1}})
    with world.registry.read() as tx:
        assert drift(tx)[0]["in_sync"]


def test_the_operator_token_is_read_from_the_home_when_a_gateway_wrote_it(world: Any) -> None:
    assert operator_token(world.home) is None
    (world.home.root / "operator.token").write_text("secret\n")
    assert operator_token(world.home) == "secret"


def test_a_replica_that_does_not_answer_is_named_with_the_call() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with ReplicaClient(url, None) as client, pytest.raises(ProbeFailed, match=rf"{url}: POST /admin/route: no ans"):
            client.route("support_router")
