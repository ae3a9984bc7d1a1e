"""Traffic written straight into the store, so that the suites' tests need no gateway and no intake."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from flywheel.evaluation.suites import SuiteSelection, select_suites
from flywheel.store.segments import register, write_segment

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)

WORDS = tuple(
    word
    for line in (
        "invoice parcel password refund router printer ticket holiday keyboard mortgage",
        "lantern orchard violin glacier harbour cactus meadow tunnel pillow saddle",
        "compass blanket furnace pepper anchor marble saffron velvet walnut zipper",
    )
    for word in line.split()
)


@dataclass
class Log:
    """Interactions and labels of one task, numbered as they are added."""

    deployment: Any
    key: bytes = b"k" * 32
    seq: int = 0
    interactions: list[dict[str, Any]] = field(default_factory=list)
    labels: list[dict[str, Any]] = field(default_factory=list)
    feedback: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.deployment.home.root / "secret.key").write_bytes(self.key)  # so that the draws are the same in every run

    def add(
        self,
        name: str,
        text: str,
        label: str | None = "billing",
        *,
        source: str = "reviewer",
        use: str = "eval",
        audit: bool = True,
        conversation: str = "",
        user: str = "",
    ) -> str:
        """One interaction, with a label unless ``label`` is None; returns its id."""
        identity = f"chatcmpl-{name}"
        messages = [{"role": "user", "content": text}]
        row = {"interaction_id": identity, "task": self.deployment.task, "ts": NOON, "audit": audit, "status": "ok"}
        row |= {"conversation_id": conversation or identity, "request": json.dumps({"messages": messages})}
        self.interactions.append(row | {"tenant": "", "user_key": user, "response": "{}", "choice_index": 0})
        if label is not None:
            self.label(identity, label, source=source, use=use)
        return identity

    def label(self, identity: str, label: str, *, source: str = "reviewer", use: str = "eval") -> None:
        """A label version."""
        self.seq += 1
        row = {"seq": self.seq, "task": self.deployment.task, "target_kind": "interaction", "target_id": identity}
        row |= {"use": use, "chosen": label, "label_source": source, "matured_at": NOON, "self_generated": False}
        self.labels.append(row | {"policy_digest": "p", "weight": 1.0, "reasons": [], "digest": f"{self.seq}"})

    def said(self, identity: str, author: str) -> None:
        """A user's correction of an interaction."""
        row = {
            "feedback_id": f"fb-{identity}-{author}",
            "task": self.deployment.task,
            "target_id": identity,
            "ts": NOON,
        }
        row |= {"target_kind": "interaction", "kind": "correction", "source": "user", "author_key": author}
        self.feedback.append(row)

    def many(self, count: int, *, start: int = 0, **about: Any) -> list[str]:
        """That many labelled, audited interactions, none a near copy of another."""
        return [self.add(f"{n:04d}", distinct(n), **about) for n in range(start, start + count)]

    def write(self) -> None:
        """Make what was added visible."""
        d = self.deployment
        written = []
        tables = {"interactions": self.interactions, "labels": self.labels, "feedback": self.feedback}
        for table, rows in tables.items():
            if rows:
                written.append(write_segment(d.home, table, d.task, "2026-03-02", rows))
        with d.registry.write() as tx:
            register(tx, written)
        self.interactions, self.labels, self.feedback = [], [], []

    def select(self, loop: int = 1, *, from_seq: int = 0, lineage: tuple[str, ...] = ()) -> SuiteSelection:
        """The suites of a loop over everything labelled after ``from_seq``."""
        d = self.deployment
        return select_suites(
            d.config,
            d.home,
            d.registry,
            d.task,
            from_seq=from_seq,
            to_seq=self.seq,
            loop_id=f"{d.task}/{loop}",
            lineage=list(lineage),
        )


def distinct(n: int) -> str:
    """The n-th of a few thousand texts that share few 5-grams."""
    a, b, c = n % 30, (n // 30 + 7 * n) % 30, (n // 900 + 13 * n) % 30
    return f"{WORDS[a]} {WORDS[b]} {n * 7919} {WORDS[c]} {n * 104729}"


@pytest.fixture
def log_of() -> Callable[[Any], Log]:
    """``log_of(deployment)`` -> Log."""
    return Log


@pytest.fixture
def log(make_deployment: Callable[..., Any]) -> Log:
    """A log of a task whose gate wants 5 to 20 items and golden 4."""
    suites = {"gate_target": 20, "gate_min": 5, "golden_target": 4, "golden_share": 0.5, "max_uses": 3}
    return Log(make_deployment(task={"suites": suites}))
