"""How many messages each act of the story takes, and the configuration that fits them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from examples.support_desk.phrases import Material, Message

TASK = "support_router"
MODEL = "smollm2-135m"
PROMPT = "Route the message to a queue."
SHOTS = 5
"""Solved examples in the prompt of the second baseline."""
REPLAYED = 1 / 3
"""Rows of earlier datasets that loop 2 repeats, for each new one: a quarter of all."""
NEW_SHARE = 0.55
"""Share of the new queues in the traffic of loop 2: they are what people ask about since they exist."""


@dataclass(frozen=True)
class Plan:
    """Message counts per act.

    Attributes:
        first: labelled interactions of loop 1.
        second: labelled interactions of loop 2.
        honest: honest labelled interactions in each of loops 3a and 3b.
        few_poison: wrong corrections in loop 3a, by `few_users` users.
        many_poison: wrong corrections in loop 3b, by `many_users` users.
        test: messages per measurement of live accuracy.
        gate, golden: suite sizes wanted.
        audit_share: of all traffic, set aside to make the suites from.
        epochs, max_steps: of training, per loop; the smaller of the two ends it.
        max_tokens: of an answer.
    """

    first: int
    second: int
    honest: int
    few_poison: int
    few_users: int
    many_poison: int
    many_users: int
    test: int
    gate: int
    golden: int
    audit_share: float
    epochs: float
    max_steps: int
    max_tokens: int
    background_per_queue: int = 10
    min_labels: int = 150
    max_per_user: int = 5


def make_plan(material: Material) -> Plan:
    """The sizes for these queues: those of a ten-queue desk, more where there are more queues."""
    first = max(290, 29 * len(material.initial))
    second = max(190, 30 * len(material.later) + 5 * len(material.initial))
    longest = max(len(queue) for queue in material.queues)
    few_poison = 200
    many_poison = 200
    # Enough of loop 1 for both suites; of more traffic a smaller share does.
    audit_share = round(max(0.12, 0.3 * 290 / first), 2)
    # Finer distinctions take more passes; fourteen queues are ours, and have to fit into ten minutes.
    epochs = 1.8 if len(material.queues) <= 14 else 2.4
    return Plan(
        first=first,
        second=second,
        honest=100,
        few_poison=few_poison,
        few_users=3,
        many_poison=many_poison,
        many_users=math.ceil(many_poison / 4),
        test=max(75, 2 * len(material.queues)),
        gate=40,
        golden=40,
        audit_share=audit_share,
        epochs=epochs,
        # Almost that many epochs of the larger of the first two loops, in batches of 8: 40 steps for ten queues.
        max_steps=math.ceil(max(first, second * (1 + REPLAYED)) * (1 - audit_share) * 0.9 * (epochs - 0.05) / 8),
        max_tokens=min(32, max(7, math.ceil(longest / 2.5) + 2)),
    )


def needs(plan: Plan, material: Material) -> dict[str, Counter[str]]:
    """Messages needed per side and queue."""
    traffic = spread(SHOTS, material.initial)
    traffic.update(spread(plan.first, material.initial))
    traffic.update(mixed(plan.second, material))
    for count in (plan.honest, plan.few_poison, plan.honest // 2, plan.many_poison):
        traffic.update(spread(count, material.queues))
    unseen: Counter[str] = Counter()
    unseen.update(spread(plan.test, material.initial))
    unseen.update(mixed(plan.test, material))
    unseen.update(spread(plan.test, material.queues))
    unseen.update(dict.fromkeys(material.queues, plan.background_per_queue))
    return {"traffic": traffic, "unseen": unseen}


def spread(count: int, queues: Sequence[str]) -> Counter[str]:
    """``count`` messages over the queues, as evenly as it goes."""
    each, rest = divmod(count, len(queues))
    return Counter({queue: each + (index < rest) for index, queue in enumerate(queues)})


def mixed(count: int, material: Material) -> Counter[str]:
    """``count`` messages over old and new queues, as they come in loop 2."""
    new = round(count * NEW_SHARE)
    return spread(count - new, material.initial) + spread(new, material.later)


class Supply:
    """Hands out every message once."""

    def __init__(self, material: Material, seed: int = 0) -> None:
        self._rest = {side: {q: list(t) for q, t in getattr(material, side).items()} for side in ("traffic", "unseen")}
        self._rng = random.Random(seed)

    def take(self, side: str, counts: Counter[str]) -> list[Message]:
        """So many messages of each queue, shuffled; ``side`` is ``traffic`` or ``unseen``."""
        taken = []
        for queue, count in counts.items():
            texts = self._rest[side][queue]
            assert len(texts) >= count, f"{queue}: {len(texts)} {side} messages left, {count} wanted"
            taken += [Message(text, queue) for text in texts[:count]]
            del texts[:count]
        self._rng.shuffle(taken)
        return taken


def write_config(path: Path, plan: Plan, *, gateway_port: int, dagster_port: int) -> None:
    """Fill the commented template next to this module."""
    template = Template((Path(__file__).parent / "flywheel.yaml.template").read_text(encoding="utf-8"))
    values = vars(plan) | {"task": TASK, "model": MODEL, "prompt": PROMPT}
    values |= {"gateway_port": gateway_port, "dagster_port": dagster_port}
    path.write_text(template.substitute(values), encoding="utf-8")
