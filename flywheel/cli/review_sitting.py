"""One reviewer's way through the queue: what comes next, what was said, and the way back.

Nothing here draws or reads keys. ``flywheel/gateway/pages/review_sitting.js`` is the same for the page.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from flywheel.cli.gateway_calls import call_gateway
from flywheel.cli.shared import Opened

BATCH = 20
"""Items fetched at once; what others label meanwhile disappears with the next batch."""

MOST = 500
"""The most that the gateway hands out at once."""

CHOICE_KEYS = "1234567890abcdfghijklmoprtvwxzABCDFG"
"""Keys of the answers to choose from: those that mean nothing else, so that each works at any time."""

Item = dict[str, Any]


@dataclass
class Sitting:
    """What one reviewer does between beginning and quitting. Every answer is on disk when its method returns.

    Args:
        past: items with the id of what was said about them, or None for those that were skipped; the last one last.
        total: items of this sitting and items that wait, as counted with the last batch.
        more: whether more wait than are counted.
        today: answers that the reviewer has judged today (UTC).
    """

    o: Opened
    task: str
    author: str
    ahead: deque[Item] = field(default_factory=deque)
    past: list[tuple[Item, str | None]] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)
    total: int = 0
    more: bool = False
    today: int = 0

    @property
    def labelled(self) -> int:
        """How many answers were judged and not taken back."""
        return sum(feedback_id is not None for _, feedback_id in self.past)

    @property
    def skipped(self) -> int:
        """How many items were passed over."""
        return len(self.past) - self.labelled

    def item(self) -> Item | None:
        """The item to label now, fetching more when there is none left; None when nothing waits."""
        if not self.ahead:
            seen = {item["interaction_id"] for item, _ in self.past}
            asked = {"task": self.task, "author": self.author, "limit": min(MOST, BATCH + len(seen))}
            found = call_gateway(self.o, "GET", "/review/items", params=asked)
            self.ahead.extend(item for item in found["items"] if item["interaction_id"] not in seen)
            self.choices = found["choices"]
            self.total, self.more = self.labelled + found["waiting"], found["more"]
            self.today = found["labelled_today"]
        return self.ahead[0] if self.ahead else None

    def right(self) -> None:
        """The model's answer is right."""
        answer = self.ahead[0]["answer"]
        self._judge({"kind": "label", "text": answer} if answer.strip() else {"kind": "thumb", "value": True})

    def answer(self, text: str) -> None:
        """This would have been right."""
        self._judge({"kind": "label", "text": text})

    def wrong(self) -> None:
        """The model's answer is wrong, and the reviewer cannot say what would have been right."""
        self._judge({"kind": "thumb", "value": False})

    def skip(self) -> None:
        """Leave the item to somebody else, or to another sitting."""
        self.past.append((self.ahead.popleft(), None))

    def undo(self) -> bool:
        """Take the last step back: its item is the next one again. False when there is none."""
        if not self.past:
            return False
        item, feedback_id = self.past[-1]
        if feedback_id is not None:
            self._post(item, {"kind": "comment", "text": "taken back", "supersedes": feedback_id})
            self.today -= 1
        self.past.pop()
        self.ahead.appendleft(item)
        return True

    def _judge(self, what: dict[str, Any]) -> None:
        feedback_id = self._post(self.ahead[0], what)
        self.past.append((self.ahead.popleft(), feedback_id))
        self.today += 1

    def _post(self, item: Item, what: dict[str, Any]) -> str:
        whose = {"interaction_id": item["interaction_id"], "task": self.task, "author": self.author}
        answer = call_gateway(self.o, "POST", "/v1/feedback", json={**whose, "source": "reviewer", **what})
        return str(answer["id"])
