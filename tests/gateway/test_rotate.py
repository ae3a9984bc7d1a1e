"""``POST /admin/rotate``: the log file that the gateway wrote is closed, and the next call opens another."""

from __future__ import annotations

from typing import Any

import pytest

from flywheel.errors import ProbeFailed
from flywheel.gateway.keys import create_key
from flywheel.release.replicas import ReplicaClient, operator_token
from flywheel.store.wal import is_live

TASK = "support_router"


def ask(gateway: Any) -> str:
    said = [{"role": "user", "content": "x"}]
    return str(gateway.sdk().chat.completions.create(model=TASK, messages=said, max_tokens=1).id)


def test_an_operator_closes_the_log_and_no_answer_is_lost(world: Any, start_gateway: Any) -> None:
    gateway = start_gateway(world)
    first = ask(gateway)
    (path,) = world.home.log.glob("*.jsonl")
    assert is_live(path)
    with ReplicaClient(gateway.url, operator_token(world.home)) as operator:
        assert operator.rotate() == {"rotated": True}
        assert operator.rotate() == {"rotated": True}, "with nothing written since, too"
    assert not is_live(path)
    before = path.read_bytes()
    second = ask(gateway)
    assert path.read_bytes() == before
    assert [row["id"] for row in world.log()] == [first, second]


def test_rotating_needs_the_scope_operate(world: Any, start_gateway: Any) -> None:
    key = create_key(world.registry, "app", ["infer", "feedback", "read"])
    gateway = start_gateway(world)
    with gateway.http(key) as http:
        assert http.post("/admin/rotate", json={}).status_code == 403
    with ReplicaClient(gateway.url, "wrong") as stranger, pytest.raises(ProbeFailed, match="/admin/rotate: 401"):
        stranger.rotate()
    with ReplicaClient(gateway.url, operator_token(world.home)) as operator:
        assert operator.rotate() == {"rotated": True}
