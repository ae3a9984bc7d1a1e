"""A promotion cannot be forced: each way of trying is refused with its own reason, and nothing has moved."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.errors import FlywheelError, PromotionRefused, StaleAttempt
from flywheel.release.pointer import Champion, swap
from flywheel.release.promotion import promote
from flywheel.release.releases import make_release
from flywheel.release.rollback import rollback
from flywheel.store.digests import digest
from flywheel.store.registry import schema


def _promote(world: Any, decision: str, **options: Any) -> Any:
    return promote(world.config, world.home, world.registry, decision, actor="test", **options)


@contextmanager
def refused(world: Any, reason: str, kind: type[FlywheelError] = PromotionRefused) -> Iterator[None]:
    """Inside, a promotion is tried; it must be refused for this reason and leave pointer and history alone."""
    before = world.champion(), world.moves()
    with pytest.raises(kind, match=reason):
        yield
    assert (world.champion(), world.moves()) == before


def test_a_good_decision_is_not_refused(world: Any) -> None:
    candidate = world.candidate()
    report = _promote(world, world.decide(candidate))
    assert world.champion() == Champion(candidate.digest, 2)
    assert (report.release, report.version, report.replicas, report.swap_ms) == (candidate.digest, 2, 0, None)


def test_without_a_decision(world: Any) -> None:
    world.candidate()
    with refused(world, "no decision record"):
        _promote(world, "d" * 64)


@pytest.mark.parametrize("verdict", ["reject", "inconclusive", "invalid"])
def test_a_verdict_other_than_promote(world: Any, verdict: str) -> None:
    decision = world.decide(world.candidate(), verdict=verdict)
    with refused(world, f"says {verdict}, not promote: gain 0.001 is below 0.01"):
        _promote(world, decision)
    assert world.decision(decision)["used_at"] is None


def test_a_used_decision(world: Any) -> None:
    decision = world.decide(world.candidate())
    _promote(world, decision)
    with refused(world, "was used at"):
        _promote(world, decision)


def test_a_used_decision_after_a_rollback_also_from_its_own_loop(world: Any) -> None:
    loop = (world.open_loop(), 1)
    decision = world.decide(world.candidate())
    _promote(world, decision, loop=loop)
    rollback(world.config, world.home, world.registry, world.task, actor="operator")
    with refused(world, "was used at"):
        _promote(world, decision, loop=loop)


def test_a_used_decision_after_rolling_back_and_forward_again(world: Any) -> None:
    loop = (world.open_loop(), 1)
    candidate = world.candidate()
    decision = world.decide(candidate)
    _promote(world, decision, loop=loop)
    rollback(world.config, world.home, world.registry, world.task, actor="operator")
    rollback(world.config, world.home, world.registry, world.task, to=candidate.digest, actor="operator")
    with refused(world, "was used at"):
        _promote(world, decision, loop=loop)


def test_a_candidate_that_the_registry_does_not_know(world: Any) -> None:
    candidate = world.candidate()
    decision = world.decide(candidate)
    with world.registry.write() as tx:
        tx.execute(sa.delete(schema.releases).where(schema.releases.c.digest == candidate.digest))
    with refused(world, "no release"):
        _promote(world, decision)


def test_a_missing_checkpoint_folder(world: Any) -> None:
    candidate = world.candidate()
    decision = world.decide(candidate)
    shutil.rmtree(candidate.adapter_folder(world.home))
    with refused(world, "is missing"):
        _promote(world, decision)


def test_one_changed_bit_in_the_checkpoint(world: Any) -> None:
    candidate = world.candidate()
    decision = world.decide(candidate)
    path = candidate.adapter_folder(world.home) / "adapter_model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with refused(world, "train again"):
        _promote(world, decision)


def test_a_truncated_checkpoint(world: Any) -> None:
    candidate = world.candidate()
    decision = world.decide(candidate)
    path = candidate.adapter_folder(world.home) / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with refused(world, "unreadable checkpoint"):
        _promote(world, decision)


def test_a_checkpoint_exchanged_for_another_with_a_manifest_of_its_own(world: Any) -> None:
    candidate, other = world.candidate(1), world.candidate(2)
    decision = world.decide(candidate)
    shutil.rmtree(candidate.adapter_folder(world.home))
    shutil.copytree(other.adapter_folder(world.home), candidate.adapter_folder(world.home))
    with refused(world, "train again"):
        _promote(world, decision)


def test_a_decision_against_another_champion(world: Any) -> None:
    decision = world.decide(world.candidate(1), expect=Champion(world.candidate(2).digest, 1))
    with refused(world, "the champion has moved: expected .* at pointer version 1"):
        _promote(world, decision)


def test_a_decision_at_another_pointer_version_of_the_same_champion(world: Any) -> None:
    first = world.champion()
    decision = world.decide(world.candidate(1))
    other = world.candidate(2).digest
    with world.registry.write() as tx:
        second = swap(tx, world.task, expect=first, to=other, kind="promote")
        swap(tx, world.task, expect=second, to=first.release, kind="rollback")
    assert world.champion() == Champion(first.release, 3)
    with refused(world, "version 1, but the champion now is .* at version 3"):
        _promote(world, decision)


@pytest.mark.parametrize(
    "columns", [{"verdict": "promote"}, {"candidate": "other"}, {"record": "other"}, {"evaluation": "e" * 64}]
)
def test_an_altered_decision(world: Any, columns: dict[str, Any]) -> None:
    candidate, other = world.candidate(1), world.candidate(2)
    decision = world.decide(candidate, verdict="reject" if "verdict" in columns else "promote")
    columns = dict(columns)
    if columns.get("candidate"):
        columns["candidate"] = other.digest
    if columns.get("record"):
        columns["record"] = world.decision(decision)["record"] | {"reasons": ["because"]}
    world.alter_decision(decision, **columns)
    with refused(world, "does not have the digest it is named by"):
        _promote(world, decision)


@pytest.mark.parametrize("attempt, state", [(1, "running"), (3, "running"), (2, "failed"), (2, "finished")])
def test_a_loop_attempt_that_is_not_the_current_one(world: Any, attempt: int, state: str) -> None:
    loop_id = world.open_loop(attempt=2, state=state)
    decision = world.decide(world.candidate())
    with refused(world, "may not promote; the loop is", StaleAttempt):
        _promote(world, decision, loop=(loop_id, attempt))


def test_a_loop_that_does_not_exist(world: Any) -> None:
    with refused(world, "the loop is unknown", StaleAttempt):
        _promote(world, world.decide(world.candidate()), loop=("support_router/9", 1))


def test_a_loop_of_another_task(world: Any) -> None:
    loop_id = world.open_loop(task="summaries")
    with refused(world, "of task support_router, loop summaries/1 of task summaries"):
        _promote(world, world.decide(world.candidate()), loop=(loop_id, 1))


def test_a_candidate_of_another_task(world: Any) -> None:
    checkpoint = world.checkpoint(1)
    two = world.config.model_copy(update={"tasks": {**world.config.tasks, "summaries": world.config.task(world.task)}})
    with world.registry.write() as tx:
        foreign = make_release(tx, two, "summaries", world.model, checkpoint)
    with refused(world, "is of task support_router, its candidate summaries@"):
        _promote(world, world.decide(foreign))


def test_a_decision_of_another_environment(world: Any) -> None:
    decision = world.decide(world.candidate(), environment="staging")
    with refused(world, "made in environment staging, this is dev"):
        _promote(world, decision)


def test_a_decision_on_other_suites_than_were_evaluated(world: Any) -> None:
    decision = world.decide(world.candidate(), evaluation_suites={"gate": "7" * 64, "golden": "6" * 64})
    with refused(world, "other suites than its evaluation"):
        _promote(world, decision)


def test_a_decision_whose_evaluation_is_gone_from_the_registry(world: Any) -> None:
    decision = world.decide(world.candidate())
    with world.registry.write() as tx:
        tx.execute(sa.delete(schema.evaluations))
    with refused(world, "is not in the registry"):
        _promote(world, decision)


def test_a_decision_whose_scores_are_gone_or_were_changed(world: Any) -> None:
    decision = world.decide(world.candidate())
    path = world.home.evaluations / f"{world.decision(decision)['evaluation']}.json"
    whole = path.read_text()
    path.write_text(whole.replace('"candidate": [\n      1', '"candidate": [\n      0'))
    assert path.read_text() != whole
    with refused(world, "was changed after the run"):
        _promote(world, decision)
    path.unlink()
    with refused(world, "score file is missing"):
        _promote(world, decision)


def test_a_decision_on_the_scores_of_another_candidate(world: Any) -> None:
    """Its record is consistent with itself, but the evaluation that it names was of somebody else."""
    mine, other = world.decide(world.candidate(1)), world.candidate(2)
    row = world.decision(mine)
    record = row["record"] | {"candidate": other.digest}
    world.alter_decision(mine, digest=digest(record), record=record, candidate=other.digest)
    with refused(world, "was of another candidate"):
        _promote(world, digest(record))


def test_the_champion_itself(world: Any) -> None:
    decision = world.decide(world.release(world.champion().release))
    with refused(world, "is the champion already"):
        _promote(world, decision)


RACER = """
import json, sys
from flywheel.config import Config
from flywheel.errors import PromotionRefused
from flywheel.release.promotion import promote
from flywheel.store.home import Home
from flywheel.store.registry import Registry
config = Config.model_validate(json.loads(sys.argv[1]))
home, registry = Home.of(config), Registry(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
try:
    promote(config, home, registry, sys.argv[3], actor="racer")
    print("won")
except PromotionRefused as error:
    print(error)
"""


@pytest.mark.parametrize("same_decision", [True, False])
def test_of_two_promotions_at_once_exactly_one_wins(world: Any, same_decision: bool) -> None:
    one = world.decide(world.candidate(1))
    two = one if same_decision else world.decide(world.candidate(2))
    config = world.config.model_dump_json()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, config, world.registry.url, decision],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for decision in (one, two)
    ]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = [racer.communicate(timeout=30)[0].strip() for racer in racers]
    assert answers.count("won") == 1
    loser = next(answer for answer in answers if answer != "won")
    assert ("was used at" if same_decision else "the champion has moved") in loser
    assert world.champion().version == 2 and len(world.moves()) == 2
