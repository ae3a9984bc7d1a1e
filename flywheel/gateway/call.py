"""One admitted completion request: its rows in the engine, what they have answered so far, and its log record.

Events come from the engine's thread into one queue that also tells when the client has gone. However a call ends, it
writes exactly one record: ``ok`` and awaited before the client may see the end, or ``error`` or ``cancelled``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from starlette.types import Receive

from flywheel.config import ServePolicy
from flywheel.errors import RequestError, StoreError
from flywheel.gateway.chat import ChatRequest
from flywheel.gateway.errors import internal_error, log_failure, unavailable
from flywheel.gateway.identity import interaction_id
from flywheel.gateway.metrics import BASE
from flywheel.gateway.routing import Route
from flywheel.gateway.state import Gateway
from flywheel.store.registry.schema import utc_now

if TYPE_CHECKING:
    from flywheel.engine.requests import Event, Handle
    from flywheel.engine.sampling import SamplingParams

Status = Literal["ok", "error", "cancelled"]


class ClientGone(Exception):
    """The client closed the connection before its answer was complete."""


@dataclass
class Choice:
    """One of the ``n`` answers."""

    index: int
    text: str = ""
    finish_reason: str | None = None
    completion_tokens: int = 0
    prompt_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        """As the API and the log have it."""
        message = {"role": "assistant", "content": self.text}
        return {"index": self.index, "message": message, "finish_reason": self.finish_reason}


@dataclass
class Call:
    """A request in the engine.

    Attributes:
        route: resolved once; nothing that happens to the routing table later changes it.
        conversation_id: the caller's, from metadata or header.
    """

    gateway: Gateway
    request: ChatRequest
    route: Route
    conversation_id: str | None
    started: float
    id: str = ""
    ts: str = field(default_factory=utc_now)
    created: int = field(default_factory=lambda: int(time.time()))
    choices: list[Choice] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)
    _logged: bool = False
    _counted: bool = False
    _handles: list[Handle] = field(default_factory=list)
    _events: asyncio.Queue[tuple[int, Event] | None] = field(default_factory=asyncio.Queue)

    @property
    def task_label(self) -> str:
        """The task as metrics call it."""
        return self.route.task or BASE

    @property
    def usage(self) -> dict[str, int]:
        """Tokens of the prompt, counted once, and of all choices."""
        prompt = max((choice.prompt_tokens for choice in self.choices), default=0)
        completion = sum(choice.completion_tokens for choice in self.choices)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    async def admit(self) -> None:
        """Encode the prompt and put a row per choice into the engine.

        Raises RequestError: 400 for a prompt that does not fit, 429 when the queue is full.
        """
        backend = self.route.backend
        prompt_ids = await backend.encode(self.route.with_prompt(self.request.conversation()))
        self.id = interaction_id(self.route.task)
        params = self._sampling(len(prompt_ids))
        loop = asyncio.get_running_loop()
        for index, each in enumerate(params):
            self.choices.append(Choice(index, prompt_tokens=len(prompt_ids)))

            def deliver(event: Event, index: int = index) -> None:
                with suppress(RuntimeError):  # the loop is closed: the server has stopped and nobody listens
                    loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

            try:
                self._handles.append(
                    backend.engine.submit(prompt_ids, each, adapter=self.route.adapter, on_event=deliver)
                )
            except RequestError:
                self.cancel()
                raise

    async def watch(self, receive: Receive) -> None:
        """Wait until the client is gone, then say so to whoever reads the events."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._events.put_nowait(None)

    async def texts(self) -> AsyncIterator[tuple[int, str]]:
        """Pieces of text with their choice's index, until every choice is finished.

        Raises RequestError when the engine fails, ClientGone when nobody waits any more.
        """
        first = True
        while any(choice.finish_reason is None for choice in self.choices):
            item = await self._events.get()
            if item is None:
                raise ClientGone
            index, event = item
            if first:
                first = False
                self.gateway.metrics.first_token.labels(self.task_label).observe(time.perf_counter() - self.started)
            piece = self._take(self.choices[index], event)
            if piece:
                yield index, piece

    async def finish(self) -> None:
        """Put the finished answer on disk. Only then may the client see its end.

        Raises RequestError (503) when the disk refuses.
        """
        self._logged = True
        try:
            await asyncio.wrap_future(self.gateway.wal.append(self.record("ok")))
        except StoreError:
            message = "The answer could not be logged, so it is not given; try again."
            raise unavailable(message, "log_unavailable") from None
        self._count("200")
        metrics, usage = self.gateway.metrics, self.usage
        metrics.latency.labels(self.task_label).observe(time.perf_counter() - self.started)
        metrics.tokens.labels(self.task_label, "prompt").inc(usage["prompt_tokens"])
        metrics.tokens.labels(self.task_label, "completion").inc(usage["completion_tokens"])

    def abandon(self, status: Status, error: RequestError | None = None) -> None:
        """End a call that did not finish: free its rows, count it, log it without waiting. Nothing if it did."""
        self.cancel()
        self._count(str(error.status) if error is not None else status)
        if not self._logged:
            self._logged = True
            with suppress(StoreError):  # closed: the process is at its end, and no answer was given
                self.gateway.wal.append(self.record(status, error))

    def cancel(self) -> None:
        """Take the rows out of the engine; finished ones do not mind."""
        for handle in self._handles:
            handle.cancel()

    def record(self, status: Status, error: RequestError | None = None) -> dict[str, Any]:
        """The log record: the request as sent, the answers, and the release that gave them."""
        metadata = self.request.metadata or {}
        record: dict[str, Any] = {
            "v": 1,
            "kind": "interaction",
            "id": self.id,
            "task": self.route.task,
            "ts": self.ts,
            "conversation_id": self.conversation_id,
            "parent_id": metadata.get("parent_id"),
            "user": self.request.user,
            "model": self.request.model,
            "request": {"messages": self.request.conversation(), "tools": None, "params": self.params},
            "choices": [choice.to_json() for choice in self.choices],
            "release": self.route.digest,
            "stream": bool(self.request.stream),
            "status": status,
            "usage": self.usage,
            "latency_ms": round((time.perf_counter() - self.started) * 1000, 3),
            "metadata": metadata,
        }
        if error is not None:
            record["error"] = error.code
        return record

    def _count(self, status: str) -> None:
        if not self._counted:
            self._counted = True
            self.gateway.metrics.requests.labels(self.task_label, status).inc()

    def _sampling(self, prompt_tokens: int) -> list[SamplingParams]:
        from flywheel.engine.sampling import SamplingParams

        request, route, limits = self.request, self.route, ServePolicy()
        context = route.backend.engine.max_context
        room = context - prompt_tokens
        wanted = request.wanted_tokens
        if room < 1 or (wanted is not None and wanted > room):
            asked = f"{prompt_tokens} in the messages, {wanted or 1} in the completion"
            raise RequestError(
                f"This model's maximum context length is {context} tokens. However, you requested "
                f"{prompt_tokens + (wanted or 1)} tokens ({asked}). Please reduce the length of either.",
                code="context_length_exceeded",
                param="messages" if room < 1 else "max_tokens",
            )
        temperature, top_p = request.temperature, request.top_p
        self.params = {
            "max_tokens": wanted or min(int(route.default("max_tokens", limits.max_tokens)), room),
            "temperature": float(
                route.default("temperature", limits.temperature) if temperature is None else temperature
            ),
            "top_p": float(route.default("top_p", limits.top_p) if top_p is None else top_p),
            "seed": request.seed,
            "stop": request.stop,
            "n": request.choices,
        }
        common = {key: self.params[key] for key in ("max_tokens", "temperature", "top_p")}
        # Choices of one seed differ from one another, yet the whole answer repeats.
        seeds = [None if request.seed is None else (request.seed + k) % 2**63 for k in range(request.choices)]
        return [SamplingParams(**common, seed=seed, stop=tuple(request.stop)) for seed in seeds]

    def _take(self, choice: Choice, event: Event) -> str:
        from flywheel.engine.requests import Failed, Finished

        if isinstance(event, Failed):
            if isinstance(event.error, RequestError):
                raise event.error
            log_failure(f"engine, answering {self.route.served}", event.error)
            raise internal_error()
        if isinstance(event, Finished):
            # The whole text is the engine's word; what it held back for a stop string or half a character comes now.
            rest = event.text[len(choice.text) :]
            choice.text = event.text
            choice.finish_reason = event.finish_reason
            choice.completion_tokens = event.completion_tokens
            return rest
        choice.text += event.text
        choice.completion_tokens += 1
        return event.text
