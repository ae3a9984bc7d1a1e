"""What our labels and caps make of noisy and hostile feedback, against believing all of it.

    python bench/labels.py [--interactions 40000] [--seed 7] [--json]

A simulated desk with known truth. Customers ask, a model that is right seven times in ten answers, and of three
answers in a hundred somebody says something: a thumb, wrong three times in ten, or a correction, wrong once in
twenty. Two users in a hundred are hostile and give four tenths of the feedback: they praise what is wrong, disapprove
of what is right, and correct towards one queue. Reviewers label the audit sample. The peer takes the mean of an
answer's thumbs and believes every correction. A row claims what the right answer is, or that an answer is good or
bad. Precision: claims that are true. Recall: true claims, of the answers about which an honest user said something.
Poisoned: false claims of hostile users, of all rows.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from flywheel.config import DataPolicy
from flywheel.config_labels import LabelPolicy
from flywheel.datasets.caps import cap
from flywheel.datasets.rows import KTO, SFT, Row, make_row
from flywheel.datasets.select import settle
from flywheel.labels.authors import Said, reliability
from flywheel.labels.evidence import current, read_evidence
from flywheel.labels.policy import make_label
from flywheel.labels.verdict import Target

PEER = "mean of thumbs, every correction believed, no caps"
QUEUES = [f"queue {letter}" for letter in "abcdefghijkl"]
TARGET = QUEUES[0]
FEEDBACK_RATE, CORRECTIONS = 0.03, 0.4
RIGHT, THUMB_NOISE, CORRECTION_NOISE = 0.7, 0.3, 0.05
HOSTILE_USERS, HOSTILE_FEEDBACK = 0.02, 0.4
AUDIT_SHARE, INTERACTIONS_PER_USER = 0.02, 10
START = datetime(2026, 1, 1, tzinfo=UTC)

Json = dict[str, Any]


@dataclass
class Asked:
    """An interaction, what would have been right, and what was said about it."""

    number: int
    user: str
    truth: str
    answer: str
    audit: bool
    feedback: list[Json] = field(default_factory=list)
    hostile: bool = False


def main() -> None:
    """Simulate, label both ways, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interactions", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one line of JSON last")
    options = parser.parse_args()
    desk = simulate(options.interactions, random.Random(options.seed))
    spoken = [asked for asked in desk if asked.feedback]
    hostile = sum(asked.hostile for asked in spoken)
    print(f"{len(desk):,} interactions, {len(spoken):,} with feedback, {hostile:,} of it hostile (seed {options.seed})")
    results = {PEER: measure(naive(desk), desk), "Flywheel": measure(ours(desk), desk)}
    print(f"{'':<52}{'rows':>7}{'precision':>11}{'recall':>8}{'poisoned':>10}")
    for name, found in results.items():
        print(
            f"{name:<52}{found['rows']:>7,}{found['precision']:>11.3f}{found['recall']:>8.3f}{found['poisoned']:>10.3f}"
        )
    if options.json:
        peer, own = results[PEER], results["Flywheel"]
        ratios = {name: round(own[name] / peer[name], 3) for name in ("precision", "recall", "poisoned") if peer[name]}
        print(json.dumps({"benchmark": "labels", "peer": PEER, "ratios": ratios, "results": results}))


def simulate(count: int, rng: random.Random) -> list[Asked]:
    """Interactions in order of their number, with the feedback of their users and of reviewers."""
    users = max(50, count // INTERACTIONS_PER_USER)
    hostile = {f"user {number}" for number in range(round(HOSTILE_USERS * users))}
    desk = []
    for number in range(count):
        truth = rng.choice(QUEUES)
        answer = truth if rng.random() < RIGHT else rng.choice([queue for queue in QUEUES if queue != truth])
        desk.append(Asked(number, f"user {rng.randrange(users)}", truth, answer, rng.random() < AUDIT_SHARE))
    honest = [asked for asked in desk if asked.user not in hostile and rng.random() < FEEDBACK_RATE]
    for asked in honest:
        asked.feedback.append(_honest(asked, rng))
    wanted = round(len(honest) * HOSTILE_FEEDBACK / (1 - HOSTILE_FEEDBACK))
    theirs = [asked for asked in desk if asked.user in hostile]
    for asked in rng.sample(theirs, min(wanted, len(theirs))):
        asked.hostile = True
        asked.feedback.append(_hostile(asked, rng))
    for asked in desk:
        if asked.audit:
            asked.feedback.append(_said(asked, "label", text=asked.truth, source="reviewer", author="reviewer"))
    return desk


def naive(desk: Sequence[Asked]) -> list[Row]:
    """The text of each correction, and each other answer as good or bad as most thumbs say."""
    rows = []
    for asked in desk:
        if asked.audit:
            continue
        texts = [row["text"] for row in asked.feedback if row["text"]]
        thumbs = [json.loads(row["value"]) for row in asked.feedback if row["kind"] == "thumb"]
        if texts:
            rows.append(_row(asked, texts[-1], 1.0))
        elif thumbs:
            rows.append(_row(asked, asked.answer, 1.0, good=sum(thumbs) / len(thumbs) > 0.5))
    return rows


def ours(desk: Sequence[Asked]) -> list[Row]:
    """The rows that labels, votes and caps leave."""
    policy, now = LabelPolicy(), START + timedelta(days=30)
    spoken = [asked for asked in desk if asked.feedback]
    said = [
        Said(read_evidence(current(asked.feedback, now), asked.answer, policy.edits), asked.user, asked.audit)
        for asked in spoken
    ]
    worth = reliability(said, Counter(asked.user for asked in desk))
    rows = []
    for asked in spoken:
        target = Target(str(asked.number), "desk", START, True, asked.answer, asked.audit)
        label = make_label(target, asked.feedback, policy, now, worth)
        if label is not None and label["use"] == SFT:
            rows.append(_row(asked, label["chosen"], label["weight"]))
        elif label is not None and label["use"] == KTO:
            rows.append(_row(asked, asked.answer, label["weight"], good=label["y"] > 0.5))
    settled, _ = settle(rows)
    # Each message is its own here: a cluster of its own, so that only the caps on users are at work.
    return cap([replace(row, cluster_id=row.interaction_id) for row in settled], DataPolicy()).rows


def measure(rows: Sequence[Row], desk: Sequence[Asked]) -> Json:
    """Rows, precision, recall and the share of poisoned rows."""
    by_number = {str(asked.number): asked for asked in desk}
    right = {row.interaction_id for row in rows if (row.target == by_number[row.interaction_id].truth) == _claims(row)}
    honest = [asked for asked in desk if asked.feedback and not asked.hostile and not asked.audit]
    found = [number for number in right if not by_number[number].hostile]
    poisoned = [row for row in rows if by_number[row.interaction_id].hostile and row.interaction_id not in right]
    return {
        "rows": len(rows),
        "precision": round(len(right) / len(rows), 4) if rows else 0.0,
        "recall": round(len(found) / len(honest), 4),
        "poisoned": round(len(poisoned) / len(rows), 4) if rows else 0.0,
    }


def _claims(row: Row) -> bool:
    """Whether a row says that its answer is right."""
    return row.kind == SFT or bool(row.desirable)


def _honest(asked: Asked, rng: random.Random) -> Json:
    good = asked.answer == asked.truth
    if not good and rng.random() < CORRECTIONS:
        text = rng.choice(QUEUES) if rng.random() < CORRECTION_NOISE else asked.truth
        return _said(asked, "correction", text=text)
    return _said(asked, "thumb", value=good != (rng.random() < THUMB_NOISE))


def _hostile(asked: Asked, rng: random.Random) -> Json:
    if rng.random() < CORRECTIONS:
        return _said(asked, "correction", text=TARGET)
    return _said(asked, "thumb", value=asked.answer != asked.truth)


def _said(
    asked: Asked, kind: str, *, text: str = "", value: Any = None, source: str = "user", author: str = ""
) -> Json:
    return {
        "feedback_id": f"{asked.number}-{kind}-{source}",
        "kind": kind,
        "value": json.dumps(value),
        "text": text,
        "source": source,
        "author_key": author or asked.user,
        "ts": START + timedelta(seconds=asked.number + 1),
        "supersedes": "",
    }


def _row(asked: Asked, target: str, weight: float, *, good: bool | None = None) -> Row:
    return make_row(
        [{"role": "user", "content": f"message {asked.number}"}],
        {"role": "assistant", "content": target},
        None,
        interaction_id=str(asked.number),
        user_key=asked.user,
        weight=weight,
        kind=SFT if good is None else KTO,
        desirable=good,
    )


if __name__ == "__main__":
    main()
