"""Asking the judge's endpoint: few questions at a time, again when it is busy, and not for ever when it is gone.

Nothing of a question or a reply is logged or put into a message.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from flywheel.config_verify import JudgeEntry
from flywheel.errors import ConfigError
from flywheel.labels.verify.prompt import Messages

AT_ONCE = 8
"""Requests under way."""
TRIES = 4
BACKOFF_S = 0.5
"""Pause before the second try; it doubles."""
LONGEST_PAUSE_S = 30.0
"""Longest pause that an endpoint may ask for."""
CONNECT_S, READ_S = 5.0, 120.0
MAX_TOKENS = 1024
"""Of a reply: room for a model that thinks first."""

_NOT_THIS = (400, 413, 422)  # what endpoints answer to a prompt that is too long or has something they do not take
_LATER = (408, 425, 429, 500, 502, 503, 504, 529)


class Refused(Exception):
    """The endpoint does not take this question."""


class Unreachable(Exception):
    """The endpoint answers nothing that is of use; the message says what came instead."""


class Endpoint:
    """An open connection to the judge. Made by `connect`."""

    def __init__(self, entry: JudgeEntry, client: httpx.AsyncClient) -> None:
        self._entry, self._client = entry, client
        self._room = asyncio.Semaphore(AT_ONCE)
        self._down: Unreachable | None = None

    async def ask(self, messages: Messages) -> str:
        """The text of the reply; "" when it has none.

        Raises Refused, or Unreachable, which then is the answer to every other question, too.
        """
        async with self._room:
            if self._down is not None:
                raise self._down
            try:
                return await self._ask(messages)
            except Unreachable as error:
                self._down = error
                raise

    async def _ask(self, messages: Messages) -> str:
        body = {"model": self._entry.model, "messages": messages, "temperature": 0, "max_tokens": MAX_TOKENS}
        pause, last = BACKOFF_S, ""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(pause)
                pause *= 2
            try:
                answer = await self._client.post(f"{self._entry.endpoint}/chat/completions", json=body)
            except httpx.TransportError as error:
                last = type(error).__name__
                continue
            if answer.status_code == 200:
                return _reply(answer)
            if answer.status_code in _NOT_THIS:
                raise Refused
            last = f"HTTP {answer.status_code}"
            if answer.status_code not in _LATER:
                break
            pause = max(pause, _asked_pause(answer))
            if pause > LONGEST_PAUSE_S:
                break
        raise Unreachable(last)


@asynccontextmanager
async def connect(entry: JudgeEntry) -> AsyncIterator[Endpoint]:
    """Open the judge's endpoint. Raises ConfigError when its key is not in the environment."""
    headers = {}
    if entry.key_env is not None:
        if not (key := os.environ.get(entry.key_env)):
            raise ConfigError(f"judge: the environment variable {entry.key_env} holds no key; set it where labels run")
        headers["authorization"] = f"Bearer {key}"
    client = httpx.AsyncClient(
        headers=headers,
        timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
        trust_env=False,  # no proxy that is meant for the world outside
        verify=ssl.create_default_context(),  # the machine's own authorities, or those in SSL_CERT_FILE
    )
    async with client:
        yield Endpoint(entry, client)


def _reply(answer: httpx.Response) -> str:
    try:
        body: Any = answer.json()
        content = body["choices"][0]["message"].get("content")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise Unreachable("something that is no chat completion") from None
    return content if isinstance(content, str) else ""


def _asked_pause(answer: httpx.Response) -> float:
    try:
        return max(0.0, float(answer.headers.get("retry-after", "0")))
    except ValueError:  # a date: our own pause will do
        return 0.0
