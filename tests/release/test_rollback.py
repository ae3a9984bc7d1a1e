"""Rollback moves between releases that were champions, back and forward, and nowhere else."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from flywheel.errors import ConfigError, PromotionRefused
from flywheel.release.pointer import Champion, history
from flywheel.release.promotion import promote
from flywheel.release.rollback import rollback


def _promote(world: Any, seed: int) -> str:
    candidate = world.candidate(seed)
    promote(world.config, world.home, world.registry, world.decide(candidate), actor="test")
    return str(candidate.digest)


def _rollback(world: Any, to: str | None = None) -> Any:
    return rollback(world.config, world.home, world.registry, world.task, to=to, actor="operator")


def test_each_rollback_goes_one_promotion_further_back(world: Any) -> None:
    base = world.champion().release
    one, two = _promote(world, 1), _promote(world, 2)
    assert _rollback(world).release == one
    assert _rollback(world).release == base
    with pytest.raises(PromotionRefused, match="nothing was the champion before"):
        _rollback(world)
    assert world.champion() == Champion(base, 5)
    assert [kind for _, kind, _ in world.moves()] == ["initial", "promote", "promote", "rollback", "rollback"]
    assert two not in (move[2] for move in world.moves()[3:])


def test_forward_again_by_name(world: Any) -> None:
    one, two = _promote(world, 1), _promote(world, 2)
    _rollback(world)
    report = _rollback(world, to=world.release(two).name)
    assert world.champion() == Champion(two, 5) and (report.release, report.previous) == (two, one)


def test_the_operator_is_recorded_and_no_decision_is_needed(world: Any) -> None:
    _promote(world, 1)
    _rollback(world)
    with world.registry.read() as tx:
        last = history(tx, world.task)[-1]
    assert (last["kind"], last["actor"], last["decision"]) == ("rollback", "operator", None)


def test_a_release_that_never_was_champion_is_refused(world: Any) -> None:
    _promote(world, 1)
    never = world.candidate(2).digest
    with pytest.raises(PromotionRefused, match="never was the champion"):
        _rollback(world, to=never)
    assert world.champion().version == 2


def test_the_champion_itself_an_unknown_release_and_an_unknown_task_are_refused(world: Any) -> None:
    now = _promote(world, 1)
    with pytest.raises(PromotionRefused, match="is the champion of task"):
        _rollback(world, to=now[:10])
    with pytest.raises(PromotionRefused, match="no release"):
        _rollback(world, to="0123456789abcdef0")
    with pytest.raises(ConfigError, match="unknown task"):
        rollback(world.config, world.home, world.registry, "summaries", actor="operator")


def test_a_damaged_target_is_refused_before_anything_moves(world: Any) -> None:
    one = _promote(world, 1)
    _promote(world, 2)
    shutil.rmtree(world.release(one).adapter_folder(world.home))
    with pytest.raises(PromotionRefused, match="is missing"):
        _rollback(world)
    assert world.champion().version == 3
