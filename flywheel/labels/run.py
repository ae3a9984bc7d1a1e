"""The label stage: recompute the labels of a task and write a new version of each that has changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from flywheel.config import Config
from flywheel.config_labels import LabelPolicy
from flywheel.labels.authors import Said, reliability
from flywheel.labels.evidence import current, read_evidence
from flywheel.labels.policy import UNSURE, make_label, policy_digest, withdrawn
from flywheel.labels.targets import answers_by_user, feedback_by_target, target_rows
from flywheel.labels.verdict import CONFLICT, DOUBTED, Target
from flywheel.labels.verify import verifiers_due
from flywheel.labels.versions import append_versions, current_digests, last_seq, load_position
from flywheel.store.compaction import compact, sweep
from flywheel.store.digests import digest
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction
from flywheel.store.segments import visible


@dataclass(frozen=True)
class LabelsReport:
    """One run of the label stage.

    Args:
        new_versions: label versions written by this run.
        total: interactions with a label.
        by_use: labels by ``sft``, ``pair``, ``kto``, ``eval`` and ``none``.
        by_source: labels by their strongest evidence.
        waiting: interactions whose feedback has not matured.
        last_seq: number of the newest label version.
        conflicts: labels that came to nothing because equally strong feedback disagrees; they wait for a reviewer.
        unsure: labels that came to nothing because too little was said.
        doubted: labels of which all that was said comes from authors who are not believed.
    """

    new_versions: int
    total: int
    by_use: dict[str, int]
    by_source: dict[str, int]
    waiting: int
    last_seq: int
    conflicts: int
    unsure: int
    doubted: int


def run_labels(
    config: Config, home: Home, registry: Registry, task: str, *, now: datetime | None = None
) -> LabelsReport:
    """Bring the labels of a task up to date with its feedback as of ``now`` (default: the clock).

    A pure function of interactions, feedback, policy and time: running it again writes nothing. Time does not go back:
    a ``now`` before that of the last run counts as that one, so that a clock set back takes no label away. Reads the
    registry only when no feedback came and no label matured since the last run.
    """
    policy = config.task(task).labels
    with locked(home.locks / f"labels-{task}.lock"):
        with registry.read() as tx:
            seen, position = _seen(tx, task, policy), load_position(tx, task)
        now = now or datetime.now(UTC)
        if position:
            now = max(now, datetime.fromisoformat(position["now"]))
            until = position["until"]
            if position["seen"] == seen and (not until or now < datetime.fromisoformat(until)):
                return LabelsReport(**position["report"], new_versions=0)
        state = _label_all(home, registry, task, policy, now)
        stored = current_digests(home, registry, task)
        _take_back(state, home, registry, task, policy, stored)
        state.labels.sort(key=lambda pair: (pair[0].ts, pair[0].interaction_id))
        fresh = [label for _, label in state.labels if stored.get(label["target_id"]) != label["digest"]]
        with registry.read() as tx:
            report = _counts(state) | {"last_seq": last_seq(tx, task) + len(fresh)}
        until = min(state.changes, default=None)
        position = {
            "seen": seen,
            "report": report,
            "now": now.isoformat(),
            "until": until.isoformat() if until else "",
        }
        append_versions(home, registry, task, fresh, position)
        if fresh and compact(home, registry, "labels", task):
            sweep(home, registry, "labels", task)
        return LabelsReport(**report, new_versions=len(fresh))


def labels_due(registry: Registry, task: str, policy: LabelPolicy, *, now: datetime | None = None) -> bool:
    """Whether the stage would have work: new feedback, another policy, a label that has matured since, or answers that
    a verifier or the judge has not looked at.

    Reads the registry, and the files that verifiers name.
    """
    now = now or datetime.now(UTC)
    with registry.read() as tx:
        seen, position = _seen(tx, task, policy), load_position(tx, task)
    if not position or position["seen"] != seen:
        return True
    until = position["until"]
    matured = bool(until) and now >= datetime.fromisoformat(until)
    return matured or verifiers_due(registry, task, policy, now)


@dataclass
class _State:
    """The labels as of now, the targets that wait, and the moments at which time alone will change something."""

    labels: list[tuple[Target, dict[str, Any]]] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)
    changes: list[datetime] = field(default_factory=list)


def _label_all(home: Home, registry: Registry, task: str, policy: LabelPolicy, now: datetime) -> _State:
    state = _State()
    spoken = feedback_by_target(home, registry, task, policy)
    said = [
        Said(read_evidence(current(rows, now), target.answer, policy.edits), target.user_key, target.audit)
        for target, rows in spoken
    ]
    worth = reliability(said, answers_by_user(home, registry, task, {one.user_key for one in said}))
    for target, rows in spoken:
        state.changes.extend(row["ts"] for row in rows if row["ts"] > now)
        label = make_label(target, rows, policy, now, worth)
        if label is None:
            continue
        if label["matured_at"] <= now:
            state.labels.append((target, label))
        else:
            state.waiting.add(target.interaction_id)
            state.changes.append(label["matured_at"])
    return state


def _take_back(
    state: _State, home: Home, registry: Registry, task: str, policy: LabelPolicy, stored: dict[str, str]
) -> None:
    """Label with nothing what had a label and has no evidence any more."""
    kept = {target.interaction_id for target, _ in state.labels} | state.waiting
    gone = sorted(stored.keys() - kept)
    if gone:
        targets = target_rows(home, registry, task, gone, policy)
        state.labels.extend((target, withdrawn(target, policy)) for target in targets)


def _counts(state: _State) -> dict[str, Any]:
    labels = [label for _, label in state.labels]
    return {
        "total": len(labels),
        "by_use": dict(sorted(Counter(label["use"] for label in labels).items())),
        "by_source": dict(sorted(Counter(label["label_source"] for label in labels).items())),
        "waiting": len(state.waiting),
        "conflicts": sum(CONFLICT in label["reasons"] for label in labels),
        "unsure": sum(UNSURE in label["reasons"] for label in labels),
        "doubted": sum(DOUBTED in label["reasons"] for label in labels),
    }


def _seen(tx: Transaction, task: str, policy: LabelPolicy) -> str:
    """Digest of what labels are made from: the visible segments and the policy."""
    tables = [[row["path"] for row in visible(tx, table, task)] for table in ("interactions", "feedback")]
    return digest([*tables, policy_digest(policy)])
