"""One erasure from plan to done. The plan is the erasure itself, only looking."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from flywheel.config import Config
from flywheel.datasets.publish import dataset_lock
from flywheel.erasure.datasets import erase_examples
from flywheel.erasure.foreign import foreign_rows
from flywheel.erasure.log import blank_lines, reach_gateways, rotate_logs
from flywheel.erasure.open_loops import end_loops
from flywheel.erasure.record import begin, earlier, finish, known_tasks, load_names, note_counts, save_names
from flywheel.erasure.recordings import erase_probes
from flywheel.erasure.runs import erase_runs
from flywheel.erasure.scope import Scope
from flywheel.erasure.suites import erase_items
from flywheel.erasure.tables import erase_rows
from flywheel.erasure.taint import TaskTaint, task_taints
from flywheel.erasure.traces import trace
from flywheel.erasure.work import Work
from flywheel.errors import ConfigError
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.store.registry import Registry

STEPS: tuple[Callable[[Work], None], ...] = (
    erase_items,
    erase_examples,
    erase_probes,
    erase_runs,
    end_loops,
    erase_rows,
    blank_lines,
)


@dataclass(frozen=True)
class Plan:
    """What an erasure would do.

    Args:
        before: state of an earlier erasure of the same person: ``done``, ``running`` (it was cut short), or None.
        counts: what goes, by kind.
        datasets, suites: rows or items that go, by digest.
        foreign: ``{task, path, rows}`` of files that the operator must see to.
        tainted: what will have learned from erased rows, earlier erasures included.
    """

    user_key: str
    before: str | None
    counts: dict[str, int]
    datasets: dict[str, int]
    suites: dict[str, int]
    foreign: list[dict[str, Any]]
    tainted: list[TaskTaint]

    @property
    def found(self) -> bool:
        """Whether there is anything of the person here."""
        return bool(self.counts)


@dataclass(frozen=True)
class Erasure:
    """What an erasure did: ``counts`` in this run, ``totals`` in all runs for this person."""

    erasure_id: str
    user_key: str
    counts: dict[str, int]
    totals: dict[str, int]
    resumed: bool
    foreign: list[dict[str, Any]]
    tainted: list[TaskTaint]


def plan_erasure(config: Config, home: Home, registry: Registry, user: str) -> Plan:
    """What ``erase`` would find and do now. Changes nothing and waits for nobody."""
    scope = _scope(home, user)
    with registry.read() as tx:
        known = earlier(tx, scope.user_key)
        tasks = sorted(set(config.tasks) | known_tasks(tx))
        if known is not None:
            load_names(tx, scope, known["erasure_id"])
    trace(home, registry, scope, tasks)
    work = _look(home, registry, scope, tasks, live_log=True)
    with registry.read() as tx:
        tainted = task_taints(tx, tasks, also=work.taught)
    return Plan(
        scope.user_key,
        known["state"] if known else None,
        dict(+work.counts),
        work.datasets,
        work.suites,
        foreign_rows(config, registry, scope, tasks),
        tainted,
    )


def erase(config: Config, home: Home, registry: Registry, user: str) -> Erasure:
    """Take a person's data out of every store and dataset. Killed anywhere and run again, it finishes.

    Nothing new of the person is taken in from the first moment on; what the gateway logs of them afterwards stays in
    its log until the next erasure. Somebody unknown is recorded as erased all the same.

    Args:
        user: the person's id as callers send it. It is stored nowhere.

    Raises:
        ConfigError: no id.
        HomeBusy: another erasure, a loop, a training or an evaluation is under way, or a live gateway cannot be asked
            to close its log. Nothing was erased then; what had begun already is unfinished.
    """
    scope = _scope(home, user)
    with ExitStack() as stack:
        for lock, holder in (("erase", "another erasure"), ("compute", "a training or an evaluation")):
            stack.enter_context(locked(home.locks / f"{lock}.lock", wait=False, holder=holder))
        reach_gateways(home, registry)
        begun = begin(registry, scope.user_key)
        rotate_logs(home, registry)
        with registry.read() as tx:
            tasks = sorted(set(config.tasks) | known_tasks(tx))
            load_names(tx, scope, begun.erasure_id)
        # Held to the end: a stage that is at work now may hold rows of the person in memory, and writes them first.
        for task in tasks:
            for path in (home.locks / f"intake-{task}.lock", home.locks / f"labels-{task}.lock"):
                stack.enter_context(locked(path))
            stack.enter_context(locked(dataset_lock(home, task)))
        trace(home, registry, scope, tasks)
        save_names(registry, scope, begun.erasure_id)
        found = _look(home, registry, scope, tasks, live_log=False).counts
        totals = note_counts(registry, begun, found)
        work = Work(home, registry, scope, tasks, begun.erasure_id, apply=True, live_log=False)
        for step in STEPS:
            step(work)
        with registry.read() as tx:
            tainted = task_taints(tx, tasks)
            mine = task_taints(tx, tasks, erasure=begun.erasure_id)
        finish(registry, begun.erasure_id, [taint.to_json() for taint in mine])
        registry.settle()
        foreign = foreign_rows(config, registry, scope, tasks)
    return Erasure(begun.erasure_id, scope.user_key, dict(+found), totals, begun.resumed, foreign, tainted)


def _scope(home: Home, user: str) -> Scope:
    if not user:
        raise ConfigError("no user id given: calls without one belong to nobody in particular")
    return Scope.of(home, user)


def _look(home: Home, registry: Registry, scope: Scope, tasks: list[str], *, live_log: bool) -> Work:
    work = Work(home, registry, scope, tasks, live_log=live_log)
    for step in STEPS:
        step(work)
    return work


__all__ = ["Erasure", "Plan", "erase", "plan_erasure"]
