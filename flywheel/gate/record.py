"""The decision record: one verdict per evaluation, written once, together with what it cost.

A decision is recomputed from the stored score file, never taken from whoever ran the evaluation. It is written in one
transaction with the uses of the suites it spent, keyed by the evaluation's digest: deciding twice, or in two processes
at once, gives one record and spends once.

Only a verdict that depended on the scores (``promote``, ``reject``) counts as a use. ``inconclusive`` and ``invalid``
follow from counts and digests alone, so they tell nothing about the items; and a gate that is still filling up would
otherwise wear out before it ever decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config, GatePolicy, SuitePolicy
from flywheel.datasets import lineage_interactions, lineage_prompts, prompt_text
from flywheel.datasets.rows import prompt_mac
from flywheel.errors import CheckpointError, DatasetError, EvaluationError
from flywheel.evaluation.items import Suite, load_suite
from flywheel.evaluation.life import retire, spend, uses
from flywheel.evaluation.report import Scores, SuiteScores, load_scores
from flywheel.gate.policy import Verdict, VerdictName, judge
from flywheel.store.digests import digest, short
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.registry.lineage import lineage_datasets

DECISIONS = schema.decisions
EVALUATIONS = schema.evaluations

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Decision:
    """A recorded verdict.

    Attributes:
        digest: of ``record``; names the decision.
        record: everything the verdict rests on, as JSON values.
    """

    digest: str
    evaluation: str
    task: str
    candidate: str
    champion: str
    pointer_version: int
    verdict: VerdictName
    reasons: list[str]
    record: dict[str, Any]


@dataclass(frozen=True)
class _Evidence:
    scores: Scores | None
    suites: list[Suite]
    faults: list[str]


def decide(config: Config, home: Home, registry: Registry, evaluation_digest: str) -> Decision:
    """Judge a recorded evaluation and write the decision, or return the one it has.

    Raises EvaluationError when the registry knows no such evaluation. Evidence that is damaged is no error: it makes a
    recorded ``invalid``.
    """
    with registry.read() as tx:
        row = tx.row(sa.select(EVALUATIONS).where(EVALUATIONS.c.digest == evaluation_digest))
        known = _find(tx, evaluation_digest)
    if row is None:
        raise EvaluationError(f"no evaluation {short(evaluation_digest)} in the registry; run the evaluation first")
    if known is not None:
        return known
    policy = config.task(row["task"])
    evidence = _gather(home, registry, row)
    with registry.write() as tx:
        if (known := _find(tx, evaluation_digest)) is not None:
            return known  # another process was faster; what it spent is spent
        verdict, used = _judge(tx, policy.gate, policy.suites, row["task"], evidence)
        record = _record(row, evidence.scores, verdict, used, policy.gate.model_dump(), policy.suites.model_dump())
        decision = _decision(digest(record), record)
        columns = {name: record[name] for name in ("evaluation", "task", "candidate", "champion", "pointer_version")}
        tx.execute(
            sa.insert(DECISIONS).values(
                digest=decision.digest,
                tenant=record["tenant"],
                verdict=decision.verdict,
                record=record,
                used_at=None,
                **columns,
                **tx.stamp(),
            )
        )
        if verdict.tested:
            spend(tx, evidence.suites, policy.suites.max_uses)
    return decision


def load_decision(registry: Registry, decision_digest: str) -> Decision:
    """The decision of that digest. Raises EvaluationError when there is none."""
    with registry.read() as tx:
        row = tx.row(sa.select(DECISIONS).where(DECISIONS.c.digest == decision_digest))
    if row is None:
        raise EvaluationError(f"no decision {short(decision_digest)} in the registry; judge the evaluation again")
    return _decision(row["digest"], row["record"])


def _find(tx: Transaction, evaluation_digest: str) -> Decision | None:
    row = tx.row(sa.select(DECISIONS).where(DECISIONS.c.evaluation == evaluation_digest))
    return None if row is None else _decision(row["digest"], row["record"])


def _decision(name: str, record: dict[str, Any]) -> Decision:
    return Decision(
        digest=name,
        evaluation=record["evaluation"],
        task=record["task"],
        candidate=record["candidate"],
        champion=record["champion"],
        pointer_version=record["pointer_version"],
        verdict=record["verdict"],
        reasons=list(record["reasons"]),
        record=record,
    )


def _gather(home: Home, registry: Registry, row: Mapping[str, Any]) -> _Evidence:
    """Read scores and suites and say what is wrong with them."""
    faults: list[str] = []
    try:
        scores = load_scores(home, row["digest"])
    except EvaluationError as error:
        return _Evidence(None, [], [str(error)])
    for name in ("task", "champion", "candidate", "input_digest"):
        if getattr(scores, name) != row[name]:
            faults.append(f"the score file and the registry name different {name.replace('_', ' ')}s")
    suites = []
    for column in (scores.gate, scores.golden):
        try:
            suite = load_suite(home, column.suite)
        except EvaluationError as error:
            faults.append(str(error))
            continue
        suites.append(suite)
        faults.extend(_mismatch(column, suite, row["task"]))
    try:
        with registry.read() as tx:
            taught = lineage_datasets(tx, row["candidate"])
        faults.extend(_overlap(home, taught, suites))
    except CheckpointError as error:
        faults.append(f"overlap is unknown: {error}")
    return _Evidence(scores, suites, faults)


def _mismatch(scores: SuiteScores, suite: Suite, task: str) -> list[str]:
    """Whether the scores are those of exactly this suite's items."""
    if suite.task != task or suite.kind != scores.kind:
        return [f"suite {short(suite.digest)} is the {suite.kind} suite of task {suite.task}, not what was evaluated"]
    if (found := len(scores.champion)) != len(suite.items) or len(scores.candidate) != found:
        return [
            f"the {suite.kind} suite has {len(suite.items)} items, the champion {found} scores and the candidate "
            f"{len(scores.candidate)}"
        ]
    if scores.clusters != [item.cluster for item in suite.items]:
        return [f"the {suite.kind} scores name other clusters than the suite"]
    if scores.slices != [item.slice for item in suite.items]:
        return [f"the {suite.kind} scores name other slices than the suite"]
    return []


def _overlap(home: Home, datasets: list[str], suites: list[Suite]) -> list[str]:
    """Suite items that the candidate has been taught: themselves, or, for those that decide, an exact copy."""
    try:
        ids, taught = lineage_interactions(home, datasets), lineage_prompts(home, datasets)
    except DatasetError as error:
        return [f"a dataset of the candidate cannot be read, so overlap is unknown: {error}"]
    secret, faults = home.secret(), []
    for suite in suites:
        same = sum(item.interaction_id in ids for item in suite.items)
        decide = [prompt_text(item.messages) for item in suite.items if item.slice == "novel"]
        copies = sum(prompt_mac(secret, text) in taught for text in decide)
        if same or copies:
            faults.append(
                f"the candidate was trained on {max(same, copies)} of the {len(suite.items)} items of the {suite.kind} "
                "suite; build the dataset again behind the firewall"
            )
    return faults


def _judge(
    tx: Transaction, gate: GatePolicy, suites: SuitePolicy, task: str, evidence: _Evidence
) -> tuple[Verdict, dict[str, int]]:
    """The verdict, with the registry's word on which items may still judge and how often they have."""
    scores, faults = evidence.scores, list(evidence.faults)
    used: dict[str, int] = {}
    drawn = next((suite for suite in evidence.suites if suite.kind == "gate"), None)
    if drawn is not None:
        ids = {item.interaction_id for item in drawn.items}
        found = uses(tx, task, ids)
        if gone := len(ids - found.keys()):
            faults.append(
                f"{gone} of the {len(ids)} gate items have graduated or were never drawn; they may not judge any more"
            )
        used = {item.interaction_id: found.get(item.interaction_id, 0) for item in drawn.items if item.slice == "novel"}
    verdict = judge(
        gate,
        suites,
        scores.gate if scores is not None else None,
        scores.golden if scores is not None else None,
        uses=list(used.values()),
        faults=faults,
    )
    return verdict, used


def _record(
    row: Mapping[str, Any],
    scores: Scores | None,
    verdict: Verdict,
    used: Mapping[str, int],
    gate_policy: dict[str, Any],
    suite_policy: dict[str, Any],
) -> dict[str, Any]:
    """What the decision rests on. Its digest names the decision, so no times and no paths."""
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation": row["digest"],
        "input_digest": row["input_digest"],
        "task": row["task"],
        "tenant": scores.tenant if scores is not None else "",
        "candidate": row["candidate"],
        "champion": row["champion"],
        "pointer_version": scores.pointer_version if scores is not None else -1,
        "suites": {"gate": scores.gate.suite, "golden": scores.golden.suite} if scores is not None else None,
        "verdict": verdict.verdict,
        "reasons": list(verdict.reasons),
        "numbers": verdict.numbers,
        "uses_before": {"items": len(used), "used": sum(count > 0 for count in used.values())},
        "policy": {
            "gate": gate_policy,
            "suites": {name: suite_policy[name] for name in ("gate_min", "golden_min", "max_uses")},
        },
    }


__all__ = ["Decision", "decide", "load_decision", "retire"]
