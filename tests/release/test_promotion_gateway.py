"""The whole way with a real gateway in a process of its own: what is promoted answers the next request."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from flywheel.errors import ProbeFailed
from flywheel.release.promotion import promote
from flywheel.release.releases import recordings
from flywheel.release.replicas import Replica, ReplicaClient, drift, live, operator_token
from flywheel.release.rollback import rollback
from flywheel.store.files import read_json, write_json

GATEWAY = """
import json, sys
from flywheel.config import Config
from flywheel.gateway.server import serve
serve(Config.model_validate(json.loads(sys.argv[1])))
"""


class Gateway:
    """A gateway process on a world's home."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.process = subprocess.Popen([sys.executable, "-c", GATEWAY, world.config.model_dump_json()])
        self.replica = self._ready()

    def _ready(self) -> Replica:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "the gateway ended"
            with self.world.registry.read() as tx:
                mine = [found for found in live(tx) if found.pid == self.process.pid and found.state == "ready"]
            if mine:
                return mine[0]
            time.sleep(0.1)
        raise AssertionError("the gateway did not become ready")

    def answered_by(self) -> str:
        """The beginning of the digest of the release that answers the task now."""
        body = {"model": self.world.task, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
        answer = httpx.post(f"{self.replica.url}/v1/chat/completions", json=body, timeout=30, trust_env=False)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["system_fingerprint"])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def gateway_world(served: Any, recorded_candidate: Callable[[int], Any]) -> tuple[Any, Callable[[int], Any]]:
    """``served`` with gateway settings of the engine that recorded its candidates, and the maker of candidates."""
    gateway = served.config.gateway.model_copy(update={"port": 0, "dtype": "float32", "threads": 1, "max_context": 256})
    served.config = served.config.model_copy(update={"gateway": gateway})
    return served, recorded_candidate


@pytest.fixture
def start() -> Iterator[Callable[[Any], Gateway]]:
    """``start(world)`` -> a ready Gateway; killed at the end of the test."""
    started: list[Gateway] = []

    def begin(world: Any) -> Gateway:
        started.append(Gateway(world))
        return started[-1]

    yield begin
    for gateway in started:
        if gateway.process.poll() is None:
            gateway.kill()


def _promote(world: Any, candidate: Any) -> Any:
    return promote(world.config, world.home, world.registry, world.decide(candidate), actor="test")


def _rollback(world: Any, to: str | None = None) -> Any:
    return rollback(world.config, world.home, world.registry, world.task, to=to, actor="operator")


def test_the_next_request_is_answered_by_what_was_promoted_and_by_what_was_rolled_back_to(
    gateway_world: Any, start: Callable[[Any], Gateway]
) -> None:
    world, candidate_of = gateway_world
    gateway, base, one = start(world), world.champion().release, candidate_of(1)
    assert gateway.answered_by() == base[:12]
    report = _promote(world, one)
    assert gateway.answered_by() == one.digest[:12] and report.replicas == 1 and report.notes == ()
    _rollback(world)
    assert gateway.answered_by() == base[:12]
    _rollback(world, to=one.digest)
    assert gateway.answered_by() == one.digest[:12]

    two, three = candidate_of(2), candidate_of(3)
    theirs, mine = recordings(world.home, two.digest), recordings(world.home, three.digest)
    write_json(mine / "probes.json", read_json(theirs / "probes.json") | {"release": three.digest})
    (mine / "probes.safetensors").write_bytes((theirs / "probes.safetensors").read_bytes())
    with pytest.raises(ProbeFailed, match="differs from its recording"):
        _promote(world, three)
    assert gateway.answered_by() == one.digest[:12]
    with ReplicaClient(gateway.replica.url, operator_token(world.home)) as client:
        assert three.name not in client.status()["loaded"]
        assert client.probe(one.digest)["mode"] == "bitwise", "another process, the same machine class"
    time.sleep(2.5)  # one heartbeat
    with world.registry.read() as tx:
        (row,) = drift(tx)
    assert row["in_sync"] and row["observed"] == one.digest


def test_a_promotion_with_the_gateway_down_is_what_the_next_gateway_serves(
    gateway_world: Any, start: Callable[[Any], Gateway]
) -> None:
    world, candidate_of = gateway_world
    gateway, one = start(world), candidate_of(1)
    gateway.kill()
    report = _promote(world, one)
    assert report.replicas == 0 and report.swap_ms is None
    assert start(world).answered_by() == one.digest[:12]
    with world.registry.read() as tx:
        assert len(live(tx)) == 1
