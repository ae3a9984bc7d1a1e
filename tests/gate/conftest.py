"""Paired scores by counts, and recorded evaluations made of them, for the gate's tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.evaluation.items import Suite, make_item, make_suite, write_suite
from flywheel.evaluation.report import Scores, SuiteScores, write_scores
from flywheel.store.digests import digest
from flywheel.store.registry import Transaction, schema


@pytest.fixture(scope="session")
def paired() -> Callable[..., SuiteScores]:
    """``paired(fixed=, broken=, right=, wrong=, kind="gate", per_cluster=1)`` -> scores in that order of items."""

    def make(
        *, fixed: int = 0, broken: int = 0, right: int = 0, wrong: int = 0, kind: str = "gate", per_cluster: int = 1
    ) -> SuiteScores:
        pairs = [(0, 1)] * fixed + [(1, 0)] * broken + [(1, 1)] * right + [(0, 0)] * wrong
        return SuiteScores(
            suite="0" * 64,
            kind=kind,
            clusters=[index // per_cluster for index in range(len(pairs))],
            slices=["novel"] * len(pairs),
            champion=[before for before, _ in pairs],
            candidate=[after for _, after in pairs],
        )

    return make


@dataclass(frozen=True)
class Case:
    """A recorded evaluation, ready to be decided."""

    deployment: Any
    evaluation: str
    scores: Scores
    gate: Suite
    golden: Suite


@pytest.fixture
def case(make_deployment: Callable[..., Any], paired: Callable[..., SuiteScores]) -> Callable[..., Case]:
    """``case(fixed=, broken=, right=, wrong=, golden={...}, deployment=None, candidate="b")`` -> Case.

    With the ``deployment`` of an earlier case the same suites judge another candidate.
    """

    def make(
        *,
        fixed: int = 0,
        broken: int = 0,
        right: int = 0,
        wrong: int = 0,
        golden: dict[str, int] | None = None,
        deployment: Any = None,
        candidate: str = "b",
        suites: dict[str, Any] | None = None,
    ) -> Case:
        d = deployment or make_deployment(task={"suites": {"gate_min": 40, "max_uses": 3} | (suites or {})})
        columns = {
            "gate": paired(fixed=fixed, broken=broken, right=right, wrong=wrong),
            "golden": paired(**(golden if golden is not None else {"right": 60}), kind="golden"),
        }
        drawn: dict[str, Suite] = {}
        for kind, column in columns.items():
            ids = [f"{kind}-{n}" for n in range(len(column.champion))]
            items = []
            for n, identity in enumerate(ids):
                messages = [{"role": "user", "content": f"{kind} {n * 7919}"}]
                items.append(make_item(identity, identity, messages, None, "x", cluster=n, novel=True))
            drawn[kind] = make_suite(d.task, kind, items)
            write_suite(d.home, drawn[kind])
            columns[kind] = column.model_copy(
                update={
                    "suite": drawn[kind].digest,
                    "clusters": [item.cluster for item in drawn[kind].items],
                    "slices": [item.slice for item in drawn[kind].items],
                }
            )
        scores = Scores(
            task=d.task,
            input_digest=digest(["input", candidate]),
            champion=digest("a"),
            candidate=digest(candidate),
            pointer_version=1,
            scorer="exact",
            decode={"wave": 8},
            **columns,
        )
        name = write_scores(d.home, scores)
        with d.registry.write() as tx:
            if deployment is None:
                _draw(tx, d.task, drawn)
            row = {"digest": name, "task": d.task, "loop_id": f"{d.task}/1", "input_digest": scores.input_digest}
            row |= {"champion": scores.champion, "candidate": scores.candidate}
            summary = {"suites": {kind: suite.digest for kind, suite in drawn.items()}}
            tx.execute(sa.insert(schema.evaluations).values(**row, summary=summary, **tx.stamp()))
        return Case(d, name, scores, drawn["gate"], drawn["golden"])

    return make


def _draw(tx: Transaction, task: str, drawn: dict[str, Suite]) -> None:
    for kind, suite in drawn.items():
        row = {
            "digest": suite.digest,
            "task": task,
            "kind": kind,
            "items": len(suite.items),
            "state": "live",
            "uses": 0,
        }
        tx.execute(sa.insert(schema.suites).values(**row, **tx.stamp()))
        for item in suite.items:
            life = {"task": task, "interaction_id": item.interaction_id, "kind": kind, "state": "live", "uses": 0}
            tx.execute(sa.insert(schema.suite_items).values(**life, loop_id=f"{task}/1", **tx.stamp()))
