"""What a promotion needs to be allowed: the decision record, checked against the world as it is now.

The checks run in one order and the first that fails gives the reason. They run twice: before anything is loaded, and
again inside the transaction that moves the pointer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.errors import CheckpointError, EvaluationError, PromotionRefused, StaleAttempt
from flywheel.evaluation.report import load_scores
from flywheel.release.pointer import Champion, champion, history, moved_message
from flywheel.release.releases import Release, get_release
from flywheel.store.digests import digest, short, tensor_digests, weights_digest
from flywheel.store.files import read_json
from flywheel.store.home import Home
from flywheel.store.registry import Transaction, schema
from flywheel.store.registry.erasures import tainted_checkpoints

DECISIONS = schema.decisions
EVALUATIONS = schema.evaluations
LOOPS = schema.loops
BOUND_FIELDS = ("evaluation", "task", "candidate", "champion", "pointer_version", "verdict")
"""Columns of a decision that its record repeats, so that its digest covers them."""

Attempt = tuple[str, int]


@dataclass(frozen=True)
class Evidence:
    """A decision that allows a promotion now: from ``expect`` to ``candidate``."""

    decision: dict[str, Any]
    candidate: Release
    expect: Champion


def find_decision(tx: Transaction, decision_digest: str) -> dict[str, Any]:
    """The decision's row. Raises PromotionRefused when there is none."""
    row = tx.row(sa.select(DECISIONS).where(DECISIONS.c.digest == decision_digest))
    if row is None:
        raise PromotionRefused(
            f"no decision record {short(decision_digest)}; only an evaluation judged by the gate makes one"
        )
    return row


def made_champion(tx: Transaction, decision: dict[str, Any], loop: Attempt | None) -> dict[str, Any] | None:
    """The ``promotions`` row by which this very decision made the present champion, for the same loop; else None.

    A loop that died after its pointer moved may so finish what it began. Once the pointer has moved on, by a rollback
    say, a used decision stays used. Raises StaleAttempt when the attempt is over.
    """
    if decision["used_at"] is None or loop is None:
        return None
    now = champion(tx, decision["task"], decision["tenant"])
    if now is None or now.release != decision["candidate"]:
        return None
    move = history(tx, decision["task"], decision["tenant"])[-1]
    if move["decision"] != decision["digest"] or move["loop_id"] != loop[0]:
        return None
    check_attempt(tx, loop, decision["task"])
    return move


def examine(
    tx: Transaction, config: Config, home: Home, decision_digest: str, loop: Attempt | None, *, files: bool = True
) -> Evidence:
    """All that must hold for a promotion; ``files=False`` leaves out hashing the checkpoint.

    Raises PromotionRefused with the first reason against it, or StaleAttempt.
    """
    row = find_decision(tx, decision_digest)
    name, task = f"decision {short(decision_digest)}", row["task"]
    if row["verdict"] != "promote":
        reasons = "; ".join(str(reason) for reason in row["record"].get("reasons") or ())
        raise PromotionRefused(f"{name} says {row['verdict']}, not promote" + (f": {reasons}" if reasons else ""))
    if row["used_at"] is not None:
        raise PromotionRefused(f"{name} was used at {row['used_at']}; a decision allows one promotion, evaluate again")
    candidate = get_release(tx, row["candidate"])
    if files:
        check_checkpoint(home, candidate)
    if candidate.checkpoint in tainted_checkpoints(tx, candidate.task):
        raise PromotionRefused(
            f"{name}: {candidate.name} has learned from erased rows; a loop trains another on what remains"
        )
    expect = Champion(row["champion"], row["pointer_version"])
    now = champion(tx, task, row["tenant"])
    if now != expect:
        raise PromotionRefused(f"{name}: {moved_message(task, expect, now)}")
    if candidate.digest == expect.release:
        raise PromotionRefused(f"{name}: {candidate.name} is the champion already")
    record = row["record"]
    altered = [field for field in BOUND_FIELDS if record.get(field) != row[field]]
    if altered or digest(record) != row["digest"]:
        what = f" ({', '.join(altered)})" if altered else ""
        raise PromotionRefused(f"{name}: its content{what} does not have the digest it is named by; evaluate again")
    if loop is not None:
        check_attempt(tx, loop, task)
    check_scope(tx, config, row, candidate)
    check_evaluation(tx, home, row)
    return Evidence(row, candidate, expect)


def check_checkpoint(home: Home, release: Release) -> None:
    """Hash the release's weights file: it must be what the release and the checkpoint's manifest say.

    Raises PromotionRefused.
    """
    folder = release.adapter_folder(home)
    if folder is None:
        return
    try:
        manifest = read_json(folder / "manifest.json")
        found = weights_digest(tensor_digests(folder / "adapter_model.safetensors"))
    except FileNotFoundError as error:
        raise PromotionRefused(f"release {release.name}: checkpoint file {error.filename} is missing") from None
    except (CheckpointError, ValueError) as error:
        raise PromotionRefused(f"release {release.name}: unreadable checkpoint in {folder}: {error}") from error
    if not release.checkpoint == found == manifest.get("digest"):
        raise PromotionRefused(
            f"release {release.name}: the weights in {folder} have digest {short(found)}, the manifest says "
            f"{short(str(manifest.get('digest')))} and the release {short(release.checkpoint or '')}; train again"
        )


def check_attempt(tx: Transaction, loop: Attempt, task: str) -> None:
    """The loop must be open at this attempt. Raises StaleAttempt, or PromotionRefused for a loop of another task."""
    loop_id, attempt = loop
    row = tx.row(sa.select(LOOPS).where(LOOPS.c.loop_id == loop_id))
    if row is None or row["attempt"] != attempt or row["state"] not in ("claimed", "running"):
        now = "unknown" if row is None else f"{row['state']} at attempt {row['attempt']}"
        raise StaleAttempt(f"{loop_id}: attempt {attempt} may not promote; the loop is {now}")
    if row["task"] != task:
        raise PromotionRefused(f"the decision is of task {task}, loop {loop_id} of task {row['task']}")


def check_scope(tx: Transaction, config: Config, row: dict[str, Any], candidate: Release) -> None:
    """Decision, release, configuration and registry must be of one task and environment. Raises PromotionRefused."""
    name, task = f"decision {short(row['digest'])}", row["task"]
    if row["environment"] != tx.environment:
        raise PromotionRefused(f"{name} was made in environment {row['environment']}, this is {tx.environment}")
    if candidate.task != task:
        raise PromotionRefused(f"{name} is of task {task}, its candidate {candidate.name} of task {candidate.task}")
    if task not in config.tasks:
        raise PromotionRefused(f"{name} is of task {task}, which this configuration does not define")


def check_evaluation(tx: Transaction, home: Home, row: dict[str, Any]) -> None:
    """The decision must rest on a stored evaluation of the same releases on the same suites.

    The score file is the witness, because it is named by its content. Raises PromotionRefused.
    """
    name = f"decision {short(row['digest'])}"
    found = tx.row(sa.select(EVALUATIONS).where(EVALUATIONS.c.digest == row["evaluation"]))
    if found is None:
        raise PromotionRefused(f"{name}: its evaluation {short(row['evaluation'])} is not in the registry")
    try:
        scores = load_scores(home, row["evaluation"])
    except EvaluationError as error:
        raise PromotionRefused(f"{name}: {error}") from error
    for field in ("task", "candidate", "champion", "pointer_version"):
        if getattr(scores, field) != row[field]:
            raise PromotionRefused(f"{name}: its evaluation was of another {field.replace('_', ' ')}; evaluate again")
    if row["record"].get("suites") != {"gate": scores.gate.suite, "golden": scores.golden.suite}:
        raise PromotionRefused(f"{name}: it judges other suites than its evaluation answered; evaluate again")
