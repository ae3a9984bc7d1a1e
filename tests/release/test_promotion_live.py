"""Promotion and rollback with a live replica: prove first, then flip; and what a failure or crash leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.errors import FlywheelError, ProbeFailed, PromotionRefused, StaleAttempt
from flywheel.release.pointer import Champion, history
from flywheel.release.promotion import promote
from flywheel.release.releases import recordings
from flywheel.release.rollback import rollback
from flywheel.store.files import read_json, write_json
from flywheel.store.registry import schema

CHILD = """
import json, sys
from flywheel.config import Config
from flywheel.release.promotion import promote
from flywheel.store.home import Home
from flywheel.store.registry import Registry
config, url, decision, loop_id = sys.argv[1:]
config = Config.model_validate(json.loads(config))
promote(config, Home.of(config), Registry(url), decision, loop=(loop_id, 1), actor="child")
"""


def _promote(world: Any, decision: str, **options: Any) -> Any:
    return promote(world.config, world.home, world.registry, decision, actor="test", **options)


def _rollback(world: Any, **options: Any) -> Any:
    return rollback(world.config, world.home, world.registry, world.task, actor="operator", **options)


def _last(world: Any) -> dict[str, Any]:
    with world.registry.read() as tx:
        return history(tx, world.task)[-1]


def _die_at(world: Any, replica: Any, path: str, decision: str, loop_id: str) -> None:
    """Promote in a child process that is killed when its call to ``path`` arrives."""
    child: list[subprocess.Popen[bytes]] = []
    spawned = threading.Event()

    def kill() -> None:
        assert spawned.wait(10)
        os.kill(child[0].pid, signal.SIGKILL)
        child[0].wait()
        raise FlywheelError("the caller is dead")

    replica.faults.before[path] = kill
    arguments = [world.config.model_dump_json(), world.registry.url, decision, loop_id]
    child.append(subprocess.Popen([sys.executable, "-c", CHILD, *arguments]))
    spawned.set()
    assert child[0].wait(30) == -signal.SIGKILL
    replica.faults.before.clear()


def test_a_promotion_loads_probes_flips_and_measures(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any], engine: Any
) -> None:
    candidate = recorded_candidate(1)
    report = _promote(served, served.decide(candidate))
    assert replica.calls == ["/admin/load", "/admin/probe", "/admin/route"]
    assert replica.routes[served.task] == candidate.digest == served.champion().release
    assert engine.adapter_digest(candidate.name) == candidate.checkpoint
    assert report.replicas == 1 and report.notes == () and not report.completed
    assert report.swap_ms > 0 and _last(served)["swap_ms"] == report.swap_ms


def test_a_replica_that_does_not_serve_what_was_evaluated_stops_the_promotion(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any], engine: Any
) -> None:
    candidate, other = recorded_candidate(1), recorded_candidate(2)
    decision = served.decide(candidate)
    first = served.champion()

    def exchange() -> None:
        engine.unload_adapter(candidate.name)
        engine.load_adapter(candidate.name, other.adapter_folder(served.home))

    replica.faults.before["/admin/probe"] = exchange
    with pytest.raises(ProbeFailed, match=r"does not serve .* as evaluated: weights read back"):
        _promote(served, decision)
    assert served.champion() == first and replica.routes[served.task] == first.release
    assert candidate.name not in engine.adapters(), "a release that failed stays nowhere loaded"
    assert served.decision(decision)["used_at"] is None
    replica.faults.before.clear()
    assert _promote(served, decision).version == 2


def test_a_candidate_without_a_recording_is_not_promoted(served: Any, replica: Any) -> None:
    with pytest.raises(ProbeFailed, match="has no probe recording"):
        _promote(served, served.decide(served.candidate(1)))
    assert served.champion().version == 1


def test_answers_that_differ_from_the_recording_stop_the_promotion(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    candidate, other = recorded_candidate(1), recorded_candidate(2)
    mine, theirs = recordings(served.home, candidate.digest), recordings(served.home, other.digest)
    write_json(mine / "probes.json", read_json(theirs / "probes.json") | {"release": candidate.digest})
    (theirs / "probes.safetensors").replace(mine / "probes.safetensors")
    with pytest.raises(ProbeFailed, match="differs from its recording"):
        _promote(served, served.decide(candidate))
    assert served.champion().version == 1


def test_a_flip_that_fails_for_a_moment_is_repeated_and_noted(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    candidate = recorded_candidate(1)
    replica.faults.route_failures = 2
    report = _promote(served, served.decide(candidate))
    assert replica.routes[served.task] == candidate.digest and report.replicas == 1
    assert any("/admin/route: 503 told to fail" in note for note in report.notes)


def test_a_flip_that_is_never_confirmed_is_undone(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    candidate = recorded_candidate(1)
    decision = served.decide(candidate)
    base = served.champion().release
    replica.faults.route_failures = 1000
    with pytest.raises(ProbeFailed, match="the promotion was undone"):
        _promote(served, decision, confirm_s=0.3)
    assert served.champion() == Champion(base, 3) and replica.routes[served.task] == base
    assert [kind for _, kind, _ in served.moves()] == ["initial", "promote", "rollback"]
    replica.faults.route_failures = 0
    with pytest.raises(PromotionRefused, match="was used at"):
        _promote(served, decision)


def test_a_replica_that_dies_during_the_flip_does_not_undo_it(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    candidate = recorded_candidate(1)

    def die() -> None:
        with served.registry.write() as tx:
            tx.execute(sa.update(schema.replicas).values(boot_id="gone"))
        raise FlywheelError("dying")

    replica.faults.before["/admin/route"] = die
    report = _promote(served, served.decide(candidate))
    assert served.champion() == Champion(candidate.digest, 2)
    assert report.replicas == 0 and any("died during the flip" in note for note in report.notes)


def test_a_replica_that_dies_while_it_is_probed_does_not_count(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    candidate = recorded_candidate(1)

    def die() -> None:
        with served.registry.write() as tx:
            tx.execute(sa.update(schema.replicas).values(boot_id="gone"))
        raise FlywheelError("dying")

    replica.faults.before["/admin/probe"] = die
    assert _promote(served, served.decide(candidate)).replicas == 0
    assert served.champion() == Champion(candidate.digest, 2)


def test_a_live_replica_that_cannot_be_reached_stops_the_promotion(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    decision = served.decide(recorded_candidate(1))
    with served.registry.write() as tx:
        tx.execute(sa.update(schema.replicas).values(url="http://127.0.0.1:9"))
    with pytest.raises(ProbeFailed, match=r"http://127\.0\.0\.1:9: POST /admin/load: no answer"):
        _promote(served, decision)
    assert served.champion().version == 1


def test_a_replica_that_is_still_starting_is_not_waited_for(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    with served.registry.write() as tx:
        tx.execute(sa.update(schema.replicas).values(state="starting"))
    report = _promote(served, served.decide(recorded_candidate(1)))
    assert report.replicas == 0 and replica.calls == []


def test_a_crash_before_the_pointer_moved_leaves_the_decision_good(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    candidate, loop_id = recorded_candidate(1), served.open_loop()
    decision = served.decide(candidate)
    _die_at(served, replica, "/admin/probe", decision, loop_id)
    assert served.champion().version == 1 and served.decision(decision)["used_at"] is None
    assert _promote(served, decision, loop=(loop_id, 1)).version == 2


def test_a_crash_after_the_pointer_moved_is_completed_by_the_same_loop_and_by_nobody_else(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    candidate, loop_id = recorded_candidate(1), served.open_loop()
    decision = served.decide(candidate)
    _die_at(served, replica, "/admin/route", decision, loop_id)
    base = replica.routes[served.task]
    assert served.champion() == Champion(candidate.digest, 2) and base != candidate.digest
    with pytest.raises(PromotionRefused, match="was used at"):
        _promote(served, decision)
    with pytest.raises(StaleAttempt):
        _promote(served, decision, loop=(loop_id, 2))
    other = served.open_loop(2)
    with pytest.raises(PromotionRefused, match="was used at"):
        _promote(served, decision, loop=(other, 1))

    report = _promote(served, decision, loop=(loop_id, 1))
    assert report.completed and (report.release, report.previous, report.version) == (candidate.digest, base, 2)
    assert replica.routes[served.task] == candidate.digest and len(served.moves()) == 2
    assert report.swap_ms == _last(served)["swap_ms"] > 0
    assert _promote(served, decision, loop=(loop_id, 1)) == report, "completing twice changes nothing"


def test_the_next_attempt_of_the_loop_completes_it_too(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    candidate, loop_id = recorded_candidate(1), served.open_loop()
    decision = served.decide(candidate)
    _die_at(served, replica, "/admin/route", decision, loop_id)
    with served.registry.write() as tx:
        tx.execute(sa.update(schema.loops).values(attempt=2))
    assert _promote(served, decision, loop=(loop_id, 2)).completed


def test_a_rollback_and_forward_again_flip_the_replica(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    base, candidate = served.champion().release, recorded_candidate(1)
    _promote(served, served.decide(candidate))
    back = _rollback(served)
    assert replica.routes[served.task] == base == back.release and back.replicas == 1
    forward = _rollback(served, to=candidate.digest)
    assert replica.routes[served.task] == candidate.digest and forward.version == 4


def test_a_rollback_stays_when_a_replica_is_silent(
    served: Any, replica: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    base = served.champion().release
    _promote(served, served.decide(recorded_candidate(1)))
    replica.faults.route_failures = 1000
    report = _rollback(served, confirm_s=0.1)
    assert served.champion() == Champion(base, 3) and report.replicas == 0 and report.swap_ms is None
    assert any("has not confirmed yet" in note for note in report.notes)
