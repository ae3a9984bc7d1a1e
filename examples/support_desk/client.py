"""All that the demo knows of Flywheel: the HTTP API, and the command line's JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
from openai.types.chat import ChatCompletionMessageParam

from examples.support_desk.ledger import Ledger
from examples.support_desk.people import Feedback, right
from examples.support_desk.phrases import Message
from examples.support_desk.plan import TASK

DOUBTED = "whoever says so is not believed"
"""Reason of a label behind which stands nobody who is believed."""

TIMEOUT_S = 120.0
FLYWHEEL = (sys.executable, "-m", "flywheel.cli.__main__")
POST_LIMIT = 1000


class DemoError(RuntimeError):
    """Something the story cannot go on without failed; the message says what and where to look."""


@dataclass(frozen=True)
class Answer:
    """A whole answer: its id for feedback, its text, and the release that gave it (``task@digest``)."""

    interaction_id: str
    text: str
    release: str


class Gateway:
    """The gateway over HTTP, as a customer's program sees it. Every request is counted in the ledger."""

    def __init__(self, url: str, ledger: Ledger) -> None:
        self.url, self.ledger = url, ledger
        # Proxies of the environment are not for a server on this machine.
        self._openai = openai.OpenAI(
            base_url=f"{url}/v1",
            api_key="none-needed-on-loopback",
            max_retries=0,
            timeout=TIMEOUT_S,
            http_client=openai.DefaultHttpxClient(trust_env=False),
        )
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)

    def ask(self, message: Message, user: str, *, stream: bool = False) -> Answer | None:
        """Send a customer's message to the task; None when the answer failed or was cut off (both counted)."""
        try:
            answer = self._stream(message, user) if stream else self._plain(message, user)
        except openai.OpenAIError as error:
            self.ledger.failed(f"{type(error).__name__}: {getattr(error, 'code', None) or 'no code'}")
            return None
        if answer is None:
            self.ledger.failed("the answer ended without a finish reason")
            return None
        self.ledger.answered(right(answer.text, message.queue))
        return answer

    def complete(self, model: str, messages: list[ChatCompletionMessageParam], max_tokens: int) -> str:
        """One answer of a base model; an empty one when it failed (counted)."""
        try:
            answer = self._openai.chat.completions.create(
                model=model, messages=messages, max_tokens=max_tokens, temperature=0.0
            )
        except openai.OpenAIError as error:
            self.ledger.failed(f"{type(error).__name__}: {getattr(error, 'code', None) or 'no code'}")
            return ""
        self.ledger.answered(None)
        return answer.choices[0].message.content or ""

    def post_feedback(self, items: Sequence[Feedback]) -> None:
        """Post feedback in as few requests as possible. Raises DemoError when the gateway does not take it."""
        for start in range(0, len(items), POST_LIMIT):
            try:
                answer = self._http.post("/v1/feedback", json=list(items[start : start + POST_LIMIT]))
            except httpx.HTTPError as error:
                raise DemoError(f"POST {self.url}/v1/feedback failed: {type(error).__name__}") from error
            if answer.status_code >= 300:
                raise DemoError(f"POST {self.url}/v1/feedback answered {answer.status_code}: {answer.text[:300]}")

    def healthy(self) -> bool:
        """Whether the gateway answers and serves its task."""
        try:
            return self._http.get("/healthz", timeout=5.0).status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        """Close the connections."""
        self._openai.close()
        self._http.close()

    def _plain(self, message: Message, user: str) -> Answer | None:
        answer = self._openai.chat.completions.create(
            model=TASK, messages=[{"role": "user", "content": message.text}], user=user
        )
        choice = answer.choices[0]
        if not choice.finish_reason:
            return None
        return Answer(answer.id, choice.message.content or "", answer.model)

    def _stream(self, message: Message, user: str) -> Answer | None:
        text, name, model, finished = "", "", "", False
        with self._openai.chat.completions.create(
            model=TASK, messages=[{"role": "user", "content": message.text}], user=user, stream=True
        ) as chunks:
            for chunk in chunks:
                name, model = chunk.id, chunk.model
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    finished = finished or choice.finish_reason is not None
        return Answer(name, text, model) if finished else None


class Cli:
    """The ``flywheel`` command on one configuration file."""

    def __init__(self, config: Path) -> None:
        self.config = config

    def pull(self, model: str) -> None:
        """Have the base model in the cache."""
        self._run("model", "pull", model)

    def task(self) -> dict[str, Any]:
        """The task's part of ``flywheel status``."""
        found: dict[str, Any] = self._json("status")["tasks"][TASK]
        return found

    def loop(self, loop_id: str) -> dict[str, Any]:
        """One loop in full."""
        found: dict[str, Any] = self._json("loop", "show", loop_id)
        return found

    def review(self) -> list[dict[str, Any]]:
        """Audited interactions that wait for a reviewer."""
        found: list[dict[str, Any]] = self._json("review", "list", "--task", TASK, "--limit", "100000")
        return [item for item in found if item["why"] == "audit"]

    def doubted(self) -> set[str]:
        """Interactions about which only people spoke who are not believed."""
        labels: list[dict[str, Any]] = self._json("labels", "list", "--task", TASK, "--limit", "100000")
        return {label["target_id"] for label in labels if DOUBTED in label["reasons"]}

    def history(self) -> list[dict[str, Any]]:
        """Every move of the champion pointer, oldest first."""
        found: list[dict[str, Any]] = self._json("champion", "history", "--task", TASK)
        return found

    def rollback(self, to: str | None = None) -> dict[str, Any]:
        """Serve the release before, or the named one."""
        found: dict[str, Any] = self._json("rollback", "--task", TASK, *(("--to", to) if to else ()))
        return found

    def _json(self, *arguments: str) -> Any:
        return json.loads(self._run(*arguments, "--config", str(self.config), "--json"))

    @staticmethod
    def _run(*arguments: str) -> str:
        done = subprocess.run(
            [*FLYWHEEL, *arguments], capture_output=True, text=True, check=False, start_new_session=True
        )
        if done.returncode:
            raise DemoError(f"`flywheel {' '.join(arguments[:2])}` ended with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout
