"""A whole turn of the wheel on the tiny model, undisturbed, without news, killed anywhere, and poisoned."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.loops.candidate import plan_candidate
from flywheel.loops.champion import champion_stage
from flywheel.loops.claims import enter, give_up
from flywheel.loops.context import LoopContext
from flywheel.loops.dataset import DatasetStage, dataset_stage
from flywheel.loops.run import run_loop
from flywheel.release.releases import get_release
from flywheel.release.rollback import rollback
from flywheel.store.registry import Registry, schema

MADE = ("dataset", "candidate", "evaluation", "decision", "from_seq", "to_seq")
"""What a loop must make of a frozen log, whatever happens on the way."""

ONE_TURN = """
import sys
from flywheel.config import load_config
from flywheel.loops.run import run_loop
from flywheel.store.home import Home
from flywheel.store.registry import Registry

config = load_config(sys.argv[1])
registry = Registry.of(config, actor="test")
print("open", flush=True)
run_loop(config, Home.of(config), registry, "support_router", run_id=sys.argv[2], say=lambda line: None)
"""


def turn(wheel: Any, run_id: str = "turn") -> dict[str, Any]:
    said: list[str] = []
    return run_loop(wheel.config, wheel.home, wheel.registry, wheel.task, run_id=run_id, say=said.append)


def made(wheel: Any) -> dict[str, Any]:
    row = wheel.loop()
    return {name: row[name] for name in MADE}


@pytest.fixture
def undisturbed(judged_folder: Path, make_wheel: Any) -> dict[str, Any]:
    """What the first loop of the log made in another home, stage by stage."""
    return made(make_wheel("undisturbed", like=judged_folder))


def test_a_turn_promotes_and_another_home_makes_the_same_of_the_same_log(make_wheel: Any, undisturbed: Any) -> None:
    wheel = make_wheel()
    wheel.talk(0, 200)
    view = turn(wheel)
    assert (view["state"], view["verdict"]) == ("finished", "promote")
    assert (
        view["evaluation"]["gate"]["candidate"]["accuracy"] > view["evaluation"]["gate"]["champion"]["accuracy"] + 0.5
    )
    assert made(wheel) == undisturbed
    assert (wheel.champion().release, wheel.champion().version) == (view["candidate"], 2)

    again = turn(wheel, "again")
    assert (again["loop_id"], again["verdict"]) == ("support_router/2", "inconclusive")
    assert "0 of at least 15 items: 15 more audited interactions" in again["reasons"][0]
    assert again["from_seq"] == view["to_seq"], "what the champion has learned is not looked at again"
    assert wheel.champion().version == 2


def test_a_poisoned_window_is_rejected_and_the_champion_stays(make_wheel: Any, judged_folder: Path) -> None:
    wheel = make_wheel(like=judged_folder)
    assert turn(wheel)["verdict"] == "promote"
    before = wheel.champion()
    wheel.talk(1000, 140, poisoned=True)
    view = turn(wheel, "poisoned")
    assert view["verdict"] == "reject", view["reasons"]
    assert view["reasons"]
    assert wheel.champion() == before
    with wheel.registry.read() as tx:
        states = tx.rows(sa.select(schema.suite_items.c.state).where(schema.suite_items.c.loop_id == view["loop_id"]))
    assert {row["state"] for row in states} == {"live"}, "items of a rejected loop may judge again"


def test_a_loop_trains_from_the_adapter_of_the_present_champion(make_wheel: Any, judged_folder: Path) -> None:
    wheel = make_wheel(like=judged_folder)
    assert turn(wheel)["verdict"] == "promote"
    wheel.talk(1000, 140)
    wheel.labelled()
    ctx = LoopContext(wheel.config, wheel.home, wheel.registry, enter(wheel.registry, wheel.task, "next"))
    assert isinstance(dataset_stage(ctx), DatasetStage)
    with wheel.registry.read() as tx:
        checkpoint = get_release(tx, wheel.champion().release).checkpoint
    assert checkpoint is not None and plan_candidate(ctx).spec.init == checkpoint
    rollback(wheel.config, wheel.home, wheel.registry, wheel.task, actor="operator")
    assert plan_candidate(ctx).spec.init is None, "the base is the champion again, so its candidate starts from there"


@pytest.mark.parametrize(("seed", "runs"), [(1, 2), *(pytest.param(s, 6, marks=pytest.mark.slow) for s in (2, 3, 4))])
def test_a_turn_killed_at_random_instants_makes_the_same_and_promotes_once(
    make_wheel: Any, undisturbed: Any, seed: int, runs: int
) -> None:
    wheel = make_wheel()
    wheel.talk(0, 200)
    draw = random.Random(seed)
    kills = 0
    for number in range(runs):
        process = subprocess.Popen(
            [sys.executable, "-c", ONE_TURN, str(wheel.path), f"kill-{number}"], stdout=subprocess.PIPE
        )
        assert process.stdout is not None and process.stdout.readline() == b"open\n"
        time.sleep(draw.uniform(0.1, 6))
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        process.stdout.close()
    assert kills, "every run was over before its kill"
    if not _loops(wheel) or wheel.loop()["state"] != "finished":
        turn(wheel)
    assert made(wheel) == undisturbed
    _promoted_once(wheel)


def test_a_loop_that_died_while_it_promoted_is_completed_by_its_next_attempt(
    make_wheel: Any, judged_folder: Path, undisturbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for instant in range(10):
        wheel = make_wheel(f"instant-{instant}", like=judged_folder)
        ctx = LoopContext(wheel.config, wheel.home, wheel.registry, enter(wheel.registry, wheel.task, "dying"))
        with monkeypatch.context() as patch:
            _die_after_transactions(patch, instant)
            try:
                champion_stage(ctx)
            except Death:
                died = True
            else:
                died = False
        assert wheel.champion().version == 2
        give_up(wheel.registry, ctx.lease.loop_id, ctx.lease.attempt, "died")
        if wheel.loop()["state"] != "finished":
            assert turn(wheel)["verdict"] == "promote"
        assert made(wheel) == undisturbed
        _promoted_once(wheel)
        if not died:
            break
    assert instant >= 1 and not died


def test_a_judgement_that_wore_its_items_out_leaves_the_dataset_of_the_next_attempt_as_it_was(
    make_wheel: Any, judged_folder: Path, undisturbed: Any
) -> None:
    wheel = make_wheel(like=judged_folder)
    items = schema.suite_items
    with wheel.registry.write() as tx:  # as `spend` does when max_uses is reached
        tx.execute(sa.update(items).where(items.c.kind == "gate").values(state="graduated"))
    assert turn(wheel)["verdict"] == "promote"
    assert made(wheel) == undisturbed


class Death(BaseException):
    """Stands for the process's end."""


def _die_after_transactions(patch: pytest.MonkeyPatch, count: int) -> None:
    """Let ``count`` write transactions after the pointer's move commit, then end."""
    from contextlib import contextmanager

    write = Registry.write
    left: list[int] = []

    @contextmanager
    def transaction(registry: Registry) -> Any:
        with write(registry) as tx:
            yield tx
            version = tx.scalar(sa.select(sa.func.max(schema.promotions.c.version)))
        if version == 2:
            left.append(1)
            if len(left) > count:
                raise Death

    patch.setattr(Registry, "write", transaction)


def _loops(wheel: Any) -> list[dict[str, Any]]:
    with wheel.registry.read() as tx:
        return list(tx.rows(sa.select(schema.loops)))


def _promoted_once(wheel: Any) -> None:
    with wheel.registry.read() as tx:
        kinds = [row["kind"] for row in tx.rows(sa.select(schema.promotions).order_by(schema.promotions.c.version))]
    assert kinds == ["initial", "promote"]
    assert wheel.champion().release == wheel.loop()["candidate"]
