"""The champion pointer moves by compare-and-swap and writes down every move."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.errors import PromotionRefused
from flywheel.release.pointer import Champion, champion, ensure_champion, history, swap, way_back


def test_the_first_champion_is_the_base_release_at_version_1(world: Any) -> None:
    first = world.champion()
    assert first.version == 1 and world.release(first.release).checkpoint is None
    assert world.moves() == [(1, "initial", first.release)]


def test_a_champion_that_exists_stays_when_the_configuration_changes(world: Any) -> None:
    first = world.champion()
    task = world.config.task(world.task).model_copy(update={"prompt": "Other words."})
    changed = world.config.model_copy(update={"tasks": {world.task: task}})
    assert ensure_champion(world.registry, changed, world.task, world.model) == first
    assert len(world.moves()) == 1


def test_a_move_changes_pointer_and_history_together(world: Any) -> None:
    first, to = world.champion(), world.candidate().digest
    with world.registry.write() as tx:
        now = swap(tx, world.task, expect=first, to=to, kind="promote", decision="d" * 64, loop_id="support_router/1")
    assert now == world.champion() == Champion(to, 2)
    with world.registry.read() as tx:
        last = history(tx, world.task)[-1]
    assert (last["kind"], last["previous"], last["decision"]) == ("promote", first.release, "d" * 64)
    assert last["loop_id"] == "support_router/1" and last["actor"] == "test"


@pytest.mark.parametrize("wrong", ["release", "version"])
def test_a_move_from_anywhere_else_is_refused_and_leaves_no_trace(world: Any, wrong: str) -> None:
    first, to = world.champion(), world.candidate().digest
    expect = Champion("e" * 64, 1) if wrong == "release" else Champion(first.release, 7)
    with pytest.raises(PromotionRefused, match=r"has moved.*version 1"), world.registry.write() as tx:
        swap(tx, world.task, expect=expect, to=to, kind="promote")
    assert world.champion() == first and len(world.moves()) == 1


def test_of_many_moves_from_one_place_exactly_one_happens(world: Any) -> None:
    first = world.champion()
    targets = [world.candidate(seed).digest for seed in range(6)]
    barrier, refused = threading.Barrier(len(targets)), []

    def move(to: str) -> None:
        barrier.wait()
        try:
            with world.registry.write() as tx:
                swap(tx, world.task, expect=first, to=to, kind="promote")
        except PromotionRefused:
            refused.append(to)

    threads = [threading.Thread(target=move, args=(to,)) for to in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == len(targets) - 1
    assert world.champion() == Champion((set(targets) - set(refused)).pop(), 2) and len(world.moves()) == 2


def test_champions_of_environments_and_tenants_are_apart(world: Any) -> None:
    with world.registry.read() as tx:
        assert champion(tx, world.task, tenant="acme") is None
    world.registry.environment = "production"
    with world.registry.read() as tx:
        assert champion(tx, world.task) is None and history(tx, world.task) == []


def _moves(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"kind": kind, "release": release} for kind, release in pairs]


def test_rolling_back_twice_goes_two_promotions_back() -> None:
    moves = _moves(("initial", "a"), ("promote", "b"), ("promote", "c"))
    assert way_back(moves) == ["a", "b", "c"]
    assert way_back([*moves, *_moves(("rollback", "b"))]) == ["a", "b"]
    assert way_back([*moves, *_moves(("rollback", "b"), ("rollback", "a"))]) == ["a"]


def test_forward_again_can_be_rolled_back_to_where_it_came_from() -> None:
    moves = _moves(("initial", "a"), ("promote", "b"), ("promote", "c"), ("rollback", "a"), ("rollback", "c"))
    assert way_back(moves) == ["a", "c"]


def test_a_promotion_after_a_rollback_goes_back_to_what_it_replaced() -> None:
    moves = _moves(("initial", "a"), ("promote", "b"), ("promote", "c"), ("rollback", "b"), ("promote", "d"))
    assert way_back(moves) == ["a", "b", "d"]


@given(st.lists(st.tuples(st.sampled_from(["promote", "rollback"]), st.sampled_from("abcd")), max_size=12))
def test_default_rollbacks_always_end_and_start_at_the_champion(steps: list[tuple[str, str]]) -> None:
    moves = _moves(("initial", "a"), *steps)
    assert way_back(moves)[-1] == moves[-1]["release"]
    before = len(way_back(moves))
    while len(stack := way_back(moves)) > 1:
        moves += _moves(("rollback", stack[-2]))
        assert len(way_back(moves)) < len(stack)
    assert len(moves) <= 1 + len(steps) + before
