"""Who may run which loop over which label versions: windows, claims, leases and attempts."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.errors import HomeBusy, StaleAttempt
from flywheel.loops.claims import (
    MAX_ATTEMPTS,
    Lease,
    Loop,
    claim,
    enter,
    finish,
    give_up,
    held,
    pending,
    record,
)
from flywheel.release.pointer import Champion, champion, ensure_champion, swap
from flywheel.store.registry import schema

LOOPS = schema.loops

CLAIM = """
import sys
from flywheel.loops.claims import claim
from flywheel.store.registry import Registry

registry = Registry(sys.argv[1])
sys.stdin.readline()
loop = claim(registry, "support_router", min_labels=10)
print(loop.run_key if loop else "none")
"""

ENTER_AND_DIE = """
import sys
from flywheel.loops.claims import enter
from flywheel.store.registry import Registry

enter(Registry(sys.argv[1]), "support_router", "theirs")
print("entered", flush=True)
sys.stdin.readline()
"""


def claimed(deployment: Any, min_labels: int = 10) -> Loop | None:
    return claim(deployment.registry, deployment.task, min_labels=min_labels)


def waiting(deployment: Any) -> int:
    with deployment.registry.read() as tx:
        return pending(tx, deployment.task)


def row(deployment: Any, number: int = 1) -> dict[str, Any]:
    with deployment.registry.read() as tx:
        found = tx.row(sa.select(LOOPS).where(LOOPS.c.number == number))
    assert found is not None
    return found


def run_to_verdict(deployment: Any, verdict: str, candidate: str) -> Loop:
    """Claim and close a loop; one that promotes moves the pointer too."""
    loop = claimed(deployment)
    assert loop is not None
    registry, task = deployment.registry, deployment.task
    lease = enter(registry, task, "run", loop_id=loop.loop_id, attempt=loop.attempt)
    record(registry, lease, candidate=candidate)
    if verdict == "promote":
        with registry.write() as tx:
            now = champion(tx, task)
            assert now is not None
            swap(tx, task, expect=now, to=candidate, kind="promote", loop_id=loop.loop_id)
    finish(registry, lease, verdict, ["because"])
    return loop


@pytest.fixture
def first(deployment: Any, tiny: Any) -> Champion:
    """The base model as the task's champion."""
    return ensure_champion(deployment.registry, deployment.config, deployment.task, tiny)


def test_a_loop_is_claimed_at_the_wanted_number_of_label_versions_and_not_before(
    deployment: Any, versions: Any
) -> None:
    versions(deployment.registry, 9)
    assert claimed(deployment) is None
    versions(deployment.registry, 10)
    assert claimed(deployment) == Loop("support_router/1", deployment.task, 0, 10, 1, "claimed")


def test_an_open_loop_keeps_its_window_while_labels_arrive(deployment: Any, versions: Any) -> None:
    versions(deployment.registry, 10)
    loop = claimed(deployment)
    versions(deployment.registry, 500)
    assert claimed(deployment) == loop
    assert waiting(deployment) == 500, "an open loop has looked at nothing yet"


def test_a_rejected_loop_loses_no_labels(deployment: Any, versions: Any, first: Champion) -> None:
    versions(deployment.registry, 20)
    run_to_verdict(deployment, "reject", "c" * 64)
    assert waiting(deployment) == 0
    versions(deployment.registry, 29)
    assert claimed(deployment) is None, "what a loop has looked at does not start another"
    versions(deployment.registry, 30)
    loop = claimed(deployment)
    assert loop is not None and (loop.from_seq, loop.to_seq) == (0, 30)


def test_a_window_begins_where_the_champion_stopped_learning(deployment: Any, versions: Any, first: Champion) -> None:
    versions(deployment.registry, 20)
    run_to_verdict(deployment, "promote", "a" * 64)
    versions(deployment.registry, 40)
    loop = run_to_verdict(deployment, "reject", "b" * 64)
    assert (loop.from_seq, loop.to_seq) == (20, 40)
    versions(deployment.registry, 60)
    loop = run_to_verdict(deployment, "promote", "c" * 64)
    assert (loop.from_seq, loop.to_seq) == (20, 60)
    with deployment.registry.write() as tx:
        swap(tx, deployment.task, expect=Champion("c" * 64, 3), to="a" * 64, kind="rollback")
    versions(deployment.registry, 80)
    back = claimed(deployment)
    assert back is not None and (back.from_seq, back.to_seq) == (20, 80), "a rollback unlearns"


def test_a_champion_that_was_promoted_by_hand_has_learned_its_loops_window(
    deployment: Any, versions: Any, first: Champion
) -> None:
    versions(deployment.registry, 20)
    loop = claimed(deployment)
    assert loop is not None
    record(deployment.registry, enter(deployment.registry, deployment.task, "run"), candidate="a" * 64)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        give_up(deployment.registry, loop.loop_id, attempt, "the replica could not be reached")
    with deployment.registry.write() as tx:
        swap(tx, deployment.task, expect=first, to="a" * 64, kind="promote")
    versions(deployment.registry, 40)
    after = claimed(deployment)
    assert after is not None and after.from_seq == 20


def test_tasks_do_not_see_each_others_labels_or_loops(deployment: Any, versions: Any) -> None:
    versions(deployment.registry, 10)
    assert claim(deployment.registry, "other", min_labels=1) is None
    assert claimed(deployment) is not None
    assert enter(deployment.registry, "other", "run").loop_id == "other/1"


def test_many_processes_that_claim_at_once_get_one_loop(deployment: Any, versions: Any) -> None:
    versions(deployment.registry, 10)
    command = [sys.executable, "-c", CLAIM, deployment.registry.url]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert answers == {"support_router/1#1"}
    with deployment.registry.read() as tx:
        assert tx.scalar(sa.select(sa.func.count()).select_from(LOOPS)) == 1


def test_only_the_current_attempt_may_enter(deployment: Any, versions: Any) -> None:
    registry, task = deployment.registry, deployment.task
    versions(deployment.registry, 10)
    loop = claimed(deployment)
    assert loop is not None
    give_up(registry, loop.loop_id, 1, "died")
    for attempt in (1, 3, None):
        with pytest.raises(StaleAttempt, match="claimed at attempt 2"):
            enter(registry, task, "late", loop_id=loop.loop_id, attempt=attempt)
    with pytest.raises(StaleAttempt, match="no such loop"):
        enter(registry, task, "late", loop_id="support_router/9", attempt=1)
    with pytest.raises(StaleAttempt, match="no such loop"):
        enter(registry, "other", "late", loop_id=loop.loop_id, attempt=2)
    lease = enter(registry, task, "on time", loop_id=loop.loop_id, attempt=2)
    finish(registry, lease, "reject", [])
    with pytest.raises(StaleAttempt, match="the loop is finished"):
        enter(registry, task, "on time", loop_id=loop.loop_id, attempt=2)


def test_a_run_without_a_loop_joins_the_open_one_or_opens_one_if_it_may(deployment: Any) -> None:
    registry, task = deployment.registry, deployment.task
    with pytest.raises(StaleAttempt, match="no loop is open"):
        enter(registry, task, "by hand", may_open=False)
    opened = enter(registry, task, "by hand")
    assert opened == Lease("support_router/1", task, 1, "by hand")
    assert enter(registry, task, "by hand", may_open=False) == opened, "entering again is fine"


def test_a_loop_is_not_taken_from_a_live_runner_but_from_a_dead_one(deployment: Any) -> None:
    registry, task = deployment.registry, deployment.task
    command = [sys.executable, "-c", ENTER_AND_DIE, registry.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "entered\n"
        with pytest.raises(HomeBusy, match=f"run theirs \\(pid {process.pid}\\)"):
            enter(registry, task, "ours")
        process.kill()
    ours = enter(registry, task, "ours")
    theirs = Lease(ours.loop_id, task, ours.attempt, "theirs")
    for late in (lambda: record(registry, theirs, dataset="d" * 64), lambda: finish(registry, theirs, "promote", [])):
        with pytest.raises(StaleAttempt, match="run theirs\\) lost its lease"):
            late()
    assert (row(deployment)["dataset"], row(deployment)["state"]) == (None, "running")


def test_a_run_that_was_given_up_can_write_nothing_after_all(deployment: Any) -> None:
    registry, task = deployment.registry, deployment.task
    lease = enter(registry, task, "slow")
    record(registry, lease, dataset="d" * 64)
    assert give_up(registry, lease.loop_id, 1, "thought dead") == "claimed"
    for late in (lambda: record(registry, lease, candidate="c" * 64), lambda: finish(registry, lease, "promote", [])):
        with pytest.raises(StaleAttempt, match=r"attempt 1 .* lost its lease; it is claimed at attempt 2"):
            late()
    with registry.read() as tx, pytest.raises(StaleAttempt):
        held(tx, lease)
    found = row(deployment)
    assert (found["candidate"], found["verdict"], found["dataset"]) == (None, None, "d" * 64)


def test_a_loop_gets_three_attempts_then_fails_and_needs_new_labels_to_start_anew(
    deployment: Any, versions: Any
) -> None:
    registry = deployment.registry
    versions(deployment.registry, 10)
    loop = claimed(deployment)
    assert loop is not None
    keys, states = [loop.run_key], []
    for attempt in (1, 2, 3):
        states.append(give_up(registry, loop.loop_id, attempt, f"death {attempt}"))
        again = claimed(deployment)
        keys += [again.run_key] if again else ["none"]
    assert states == ["claimed", "claimed", "failed"]
    assert keys == ["support_router/1#1", "support_router/1#2", "support_router/1#3", "none"]
    failed = row(deployment)
    assert (failed["state"], failed["from_seq"], failed["to_seq"]) == ("failed", 0, 10)
    assert failed["reasons"] == ["attempt 1: death 1", "attempt 2: death 2", "attempt 3: death 3"]
    assert failed["finished_at"]
    versions(deployment.registry, 19)
    assert claimed(deployment) is None, "the same labels would fail again and again"
    versions(deployment.registry, 20)
    assert claimed(deployment) == Loop("support_router/2", deployment.task, 0, 20, 1, "claimed")


def test_giving_up_an_attempt_twice_counts_once(deployment: Any) -> None:
    lease = enter(deployment.registry, deployment.task, "run")
    assert give_up(deployment.registry, lease.loop_id, 1, "died") == "claimed"
    assert give_up(deployment.registry, lease.loop_id, 1, "died") == "claimed"
    assert row(deployment)["attempt"] == 2
    assert give_up(deployment.registry, "support_router/9", 1, "died") == "gone"
