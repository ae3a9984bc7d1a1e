"""Traffic and labels written straight into a home's segments, as intake and labels leave them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from flywheel.datasets import DatasetBuild, HeldOut, build, load_examples
from flywheel.store.segments import register, write_segment

if TYPE_CHECKING:
    from tests.conftest import Deployment

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
WORDS = (
    "river",
    "stone",
    "window",
    "apple",
    "market",
    "silver",
    "quiet",
    "planet",
    "copper",
    "garden",
    "thunder",
    "ladder",
    "velvet",
    "basket",
    "corner",
    "meadow",
    "signal",
    "harbor",
    "pencil",
    "forest",
    "butter",
    "engine",
    "mirror",
    "candle",
    "valley",
    "rocket",
    "marble",
    "pillow",
    "hammer",
    "desert",
)


def phrase(seed: int) -> str:
    """A text that shares no near copy with that of another seed."""
    return " ".join(random.Random(seed).sample(WORDS, 6)) + f" {seed}"


@dataclass
class World:
    """A deployment to which traffic and labels are added; ``commit`` makes them visible."""

    at: Deployment
    order: random.Random | None = None  # shuffles rows before they are written
    _interactions: list[dict[str, Any]] = field(default_factory=list)
    _labels: list[dict[str, Any]] = field(default_factory=list)
    _count: int = 0
    seq: int = 0

    def ask(
        self,
        text: str | list[dict[str, Any]],
        *,
        user: str = "",
        conversation: str | None = None,
        answer: str = "unsure",
        finish: str = "stop",
        release: str = "ab" * 32,
        turn: int = 0,
    ) -> str:
        """One interaction; its id."""
        self._count += 1
        name = f"chatcmpl-{self._count:032x}"
        messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
        self._interactions.append(
            {
                "interaction_id": name,
                "task": self.at.task,
                "conversation_id": conversation or name,
                "turn_index": turn,
                "user_key": self.at.home.user_key(user),
                "ts": START + timedelta(seconds=self._count),
                "request": json.dumps({"messages": messages, "tools": None, "params": {}}),
                "response": json.dumps({"message": {"role": "assistant", "content": answer}, "finish_reason": finish}),
                "release": release,
                "choice_index": 0,
            }
        )
        return name

    def label(
        self,
        target: str,
        chosen: str,
        *,
        use: str = "sft",
        weight: float = 1.0,
        source: str = "correction",
        own: bool = False,
        rejected: str = "",
        y: float = 0.9,
    ) -> int:
        """A new label version; its seq."""
        self.seq += 1
        self._labels.append(
            {
                "seq": self.seq,
                "task": self.at.task,
                "target_kind": "interaction",
                "target_id": target,
                "policy_digest": "cd" * 32,
                "use": use,
                "y": y,
                "confidence": 0.9,
                "weight": weight,
                "chosen": chosen,
                "rejected": rejected,
                "shown_first": "",
                "label_source": source,
                "self_generated": own,
                "reasons": [],
                "matured_at": START,
                "digest": f"{self.seq:064x}",
            }
        )
        return self.seq

    def teach(self, text: str, target: str, **about: Any) -> str:
        """An interaction with its label; ``weight`` and ``source`` are the label's, the rest the interaction's."""
        of_label = {key: about.pop(key) for key in ("use", "weight", "source", "own", "rejected", "y") if key in about}
        name = self.ask(text, **about)
        self.label(name, target, **of_label)
        return name

    def teach_many(self, count: int, *, first: int = 0, targets: int = 4, user: str | None = None) -> list[str]:
        """Unlinked rows, each of a user of its own unless one is named."""
        numbers = range(first, first + count)
        return [self.teach(phrase(n), f"queue {n % targets}", user=user or f"user {n}") for n in numbers]

    def commit(self) -> World:
        """Write what was added."""
        tables = {"interactions": self._interactions, "labels": self._labels}
        segments = []
        for table, rows in tables.items():
            if self.order:
                self.order.shuffle(rows)
            if rows:
                segments.append(write_segment(self.at.home, table, self.at.task, "2026-11-30", rows))
        with self.at.registry.write() as tx:
            register(tx, segments)
        self._interactions, self._labels = [], []
        return self

    def build(self, **how: Any) -> DatasetBuild:
        """Commit and build a dataset of everything."""
        self.commit()
        known: dict[str, Any] = {
            "from_seq": 0,
            "to_seq": self.seq,
            "loop_id": f"{self.at.task}/1",
            "parent": None,
            "lineage": [],
            "held_out": HeldOut(),
            "graduated": frozenset(),
        }
        return build(self.at.config, self.at.home, self.at.registry, self.at.task, **(known | how))

    def rows(self, built: DatasetBuild) -> list[dict[str, Any]]:
        """The examples, with ``prompt`` (last user text) and ``target`` spelt out."""
        rows = load_examples(self.at.home, built.digest)
        for row in rows:
            messages = json.loads(row["messages"])
            row["prompt"], row["target"] = messages[-2]["content"], messages[-1]["content"]
        return rows


@pytest.fixture
def make_world(make_deployment: Callable[..., Deployment]) -> Callable[..., World]:
    """``make_world(name="a", order=random.Random(1), **data_policy)`` -> World."""

    def make(name: str = "world", order: random.Random | None = None, **data: Any) -> World:
        return World(make_deployment(name, task={"data": {"min_examples": 1, **data}}), order)

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A deployment with default data policy, but content with one example."""
    return make_world()


@pytest.fixture
def phrases() -> Callable[[Sequence[int]], list[str]]:
    """``phrases(range(3))`` -> three texts without near copies."""
    return lambda seeds: [phrase(seed) for seed in seeds]
