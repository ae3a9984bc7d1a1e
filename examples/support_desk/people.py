"""Who works at, and against, the desk: what each of them says about an answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

AGENT_ERROR = 0.025
"""Share of messages where an agent picks a wrong queue, or praises a wrong answer."""
THUMB_SHARE, CONFIRM_SHARE = 0.45, 0.40
"""Of right answers: how many get a thumb up, and how many an agent files under the same queue by hand."""

Feedback = dict[str, Any]


def right(answer: str, queue: str) -> bool:
    """Whether a live answer is the queue's name: exactly, but for case and a final period."""
    return answer.strip().rstrip(".").strip().casefold() == queue.casefold()


def agent(answer: str, queue: str, queues: Sequence[str], rng: random.Random) -> Feedback | None:
    """An agent's reaction: a wrong route is corrected, a right one sometimes praised or confirmed, and some errors."""
    if rng.random() < AGENT_ERROR:
        return correction(rng.choice([other for other in queues if other != queue]))
    if not right(answer, queue):
        return correction(queue)
    mood = rng.random()
    if mood < THUMB_SHARE:
        return {"kind": "thumb", "value": True, "source": "user"}
    return correction(queue) if mood < THUMB_SHARE + CONFIRM_SHARE else None


def correction(queue: str) -> Feedback:
    """Files the message under ``queue``."""
    return {"kind": "correction", "text": queue, "source": "user"}


def reviewer(queue: str) -> Feedback:
    """A reviewer's label of an audited message."""
    return {"kind": "label", "text": queue, "source": "reviewer"}


def attacker(queue: str, queues: Sequence[str]) -> Feedback:
    """A wrong correction, always the same for one queue: the kind that a model learns best."""
    return correction(queues[(list(queues).index(queue) + 1) % len(queues)])
