"""One turn of the wheel as the desk lives it: review, feedback, then watching the loop that the sensors start."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from examples.support_desk import people
from examples.support_desk.client import Cli, DemoError, Gateway
from examples.support_desk.ledger import Ledger
from examples.support_desk.people import Feedback
from examples.support_desk.phrases import Message
from examples.support_desk.progress import Progress
from examples.support_desk.simulator import Background, Exchange

REVIEW_LIMIT_S = 180.0
START_LIMIT_S = 240.0
LOOP_LIMIT_S = 3600.0
POLL_S = 5.0


@dataclass(frozen=True)
class Desk:
    """Everybody and everything at the desk."""

    gateway: Gateway
    cli: Cli
    ledger: Ledger
    background: Background
    progress: Progress
    rng: random.Random


def agents(desk: Desk, exchanges: Sequence[Exchange], queues: Sequence[str]) -> list[Feedback]:
    """What the agents say about honest customers' messages."""
    return _said(exchanges, lambda e: people.agent(e.answer.text, e.message.queue, queues, desk.rng))


def attackers(exchanges: Sequence[Exchange], queues: Sequence[str]) -> list[Feedback]:
    """Wrong corrections of every message."""
    return _said(exchanges, lambda e: people.attacker(e.message.queue, queues))


def reviewers(desk: Desk, exchanges: Sequence[Exchange], wanted: int) -> list[Feedback]:
    """Reviewers' labels of audited messages: of this act first, then of the background, no text twice.

    Waits until intake has brought enough of them; with fewer after three minutes the desk goes on with those.
    """
    act = {exchange.answer.interaction_id: exchange.message for exchange in exchanges}
    deadline = time.monotonic() + REVIEW_LIMIT_S
    while True:
        waiting = [item["interaction_id"] for item in desk.cli.review()]
        known = {**desk.background.asked, **act}
        mine = [name for name in waiting if name in act]
        rest = [name for name in waiting if name in known and name not in act]
        desk.rng.shuffle(mine)
        # The newest of the background: messages that customers write now.
        chosen = _first_of_each_text([*mine, *reversed(rest)], known)[:wanted]
        desk.progress.count("audited messages ready for the reviewers", len(chosen), wanted)
        if len(chosen) >= wanted or time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    desk.progress.note(f"reviewers label {len(chosen)} audited messages")
    return [_about(name, "desk-reviewer", people.reviewer(known[name].queue)) for name in chosen]


def watch_loop(desk: Desk, after: int) -> dict[str, Any]:
    """Wait for the loop numbered above ``after`` and its end. Raises DemoError when it does not start, or fails."""
    began = time.monotonic()
    said = ""
    while True:
        task = desk.cli.task()
        newer = [loop for loop in task["loops"] if loop["number"] > after]
        waited = time.monotonic() - began
        if newer:
            loop: dict[str, Any] = min(newer, key=lambda one: int(one["number"]))
            stage = _stage(loop)
            if stage != said:
                desk.progress.note(f"{loop['loop_id']}: {stage}")
                said = stage
            desk.progress.step(f"{loop['loop_id']}: {stage}, {waited:.0f} s since the feedback")
            if loop["state"] == "finished":
                return loop
            if loop["state"] == "failed":
                raise DemoError(f"{loop['loop_id']} failed: {'; '.join(loop['reasons'])}")
        else:
            desk.progress.step(f"{task['pending_labels']} labels wait; the sensors start a loop")
            if waited > START_LIMIT_S:
                raise DemoError(f"no loop started within {START_LIMIT_S:.0f} s; {task['pending_labels']} labels wait")
        if waited > LOOP_LIMIT_S:
            raise DemoError(f"{newer[0]['loop_id']} did not end within {LOOP_LIMIT_S / 60:.0f} minutes")
        time.sleep(POLL_S)


def last_number(task: dict[str, Any]) -> int:
    """Number of the newest loop; 0 before the first."""
    return max((int(loop["number"]) for loop in task["loops"]), default=0)


def _stage(loop: dict[str, Any]) -> str:
    if loop["state"] == "finished":
        return str(loop["verdict"])
    if loop["state"] == "claimed":
        return "claimed" if loop["attempt"] == 1 else f"attempt {loop['attempt']} waits to start"
    if loop["dataset"] is None:
        return "building the dataset"
    if loop["candidate"] is None:
        rows = loop["dataset"]["rows"]
        return f"training on {rows['train']} examples ({rows['replay']} of them replayed)"
    if loop["evaluation"] is None:
        return "champion and candidate answer the suites"
    return "loading and probing the candidate"


def _said(exchanges: Sequence[Exchange], say: Callable[[Exchange], Feedback | None]) -> list[Feedback]:
    return [
        _about(exchange.answer.interaction_id, exchange.user, said)
        for exchange in exchanges
        if (said := say(exchange)) is not None
    ]


def _about(interaction_id: str, author: str, said: Feedback) -> Feedback:
    return {"interaction_id": interaction_id, "author": author, **said}


def _first_of_each_text(names: Sequence[str], known: dict[str, Message]) -> list[str]:
    seen: dict[str, str] = {}
    for name in names:
        seen.setdefault(known[name].text, name)
    return list(seen.values())
