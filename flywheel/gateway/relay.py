"""Passing one completion request on to an engine that is not ours, and its answer back, with a record in the log.

Status, headers for the caller and every byte of the body come back as the engine sent them; it is heard to the end
before the caller is, so that the record is on disk first. When the caller leaves, the engine's connection is closed,
which ends the work there. When the engine breaks off, so do we: an end that it did not send is not made up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import httpx
from fastapi import Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from flywheel.errors import RequestError, StoreError
from flywheel.gateway.answer import Answer
from flywheel.gateway.bodies import nests_deeper
from flywheel.gateway.call import Status
from flywheel.gateway.envelope import Envelope
from flywheel.gateway.errors import error_response, unavailable
from flywheel.gateway.identity import interaction_id
from flywheel.gateway.state import Gateway
from flywheel.gateway.upstream import Upstream, failure, passed_back
from flywheel.intake.decode import MAX_DEPTH
from flywheel.intake.formats import chat
from flywheel.store.registry.schema import utc_now

MAX_WAITING = 64 * 1024
"""Bytes of a stream that may wait for its first chunk, whose id the headers carry: comments, mostly."""

INTERACTION = "x-flywheel-interaction"
"""The header that carries the interaction's id."""

TOO_DEEP = "record_too_deep"
"""Requests or answers nested deeper than any reader of the log goes are left out of their record."""


class Relay(Response):
    """The ASGI response that does all of it.

    Args:
        request: its headers go on, and may tell the conversation.
        started: ``time.perf_counter()`` at receipt.
    """

    def __init__(
        self, gateway: Gateway, upstream: Upstream, envelope: Envelope, request: Request, started: float
    ) -> None:
        self.gateway, self.upstream, self.envelope, self.started = gateway, upstream, envelope, started
        self.status_code = 200
        self.background = None
        self._asked = request.headers
        self._ts = utc_now()
        self._id = ""
        self._answer: Answer | None = None
        self._begun = False
        self._logged: asyncio.Future[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self.upstream.place():
                await self._unless_left(receive, self._pass_on(send))
        except RequestError as error:
            if self._logged is None:  # refused before it was passed on
                self._count(str(error.status))
            if not self._begun:
                refusal = error_response(error)
                if self._id:
                    refusal.headers[INTERACTION] = self._id
                await refusal(scope, receive, send)
        # An answer that has begun and not ended here is broken off by the server, as the engine did.

    async def _unless_left(self, receive: Receive, passing: Coroutine[Any, Any, None]) -> None:
        """Run until done, or until the caller has left."""
        work = asyncio.create_task(passing)
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.wait((work, gone))
        if not work.cancelled():
            work.result()

    async def _pass_on(self, send: Send) -> None:
        try:
            response = await self.gateway.upstreams.ask(self.upstream, self.envelope, self._asked.raw)
            try:
                await self._pass_back(response, send)
            finally:
                await response.aclose()
        except RequestError as error:
            with suppress(RequestError):  # the caller gets a refusal in any case
                await self._log("error", str(error.status), error.code or "")
            raise
        except asyncio.CancelledError:
            if self._note("cancelled"):
                self._count("cancelled")
            raise
        except BaseException:
            if self._note("error", "internal_error"):
                self._count("500")
            raise

    async def _pass_back(self, response: httpx.Response, send: Send) -> None:
        """Relay the answer. Raises RequestError: 502 or 504 when none of it could be sent, 503 when the log fails."""
        body = self.envelope.body
        stream, choices = body.get("stream") is True, chat.whole_number(body.get("n"), 1) or 1
        answer = Answer(response.status_code, response.headers, stream=stream, choices=choices)
        self._answer = answer
        waiting = bytearray()
        broken: RequestError | None = None
        try:
            async for piece in response.aiter_raw():
                if answer.starts and stream:
                    seconds = time.perf_counter() - self.started
                    self.gateway.metrics.first_token.labels(self.upstream.task).observe(seconds)
                waiting += answer.feed(piece)
                if waiting and (self._begun or answer.named or len(waiting) > MAX_WAITING):
                    await self._send(response, bytes(waiting), send)
                    waiting.clear()
        except httpx.TransportError as error:
            broken = failure(self.upstream, error)
        waiting += answer.end(broken is not None)
        await self._log("error" if answer.fault else "ok", str(response.status_code), answer.fault)
        if broken is not None and not self._begun:
            raise broken
        await self._send(response, bytes(waiting), send, more=broken is not None)

    async def _send(self, response: httpx.Response, block: bytes, send: Send, more: bool = True) -> None:
        if not self._begun:
            self._begun = True
            headers = [*passed_back(response), (INTERACTION.encode(), self._name().encode())]
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": block, "more_body": more})

    def _name(self) -> str:
        """The interaction's id, settled at the first call: the engine's, if it names this answer and no other."""
        if not self._id:
            own = self._answer.id if self._answer is not None else ""
            usable = 0 < len(own) <= chat.MAX_CALL_ID and own.isascii() and own.isprintable() and own.strip() == own
            taken = usable and self.gateway.upstreams.remember(own, self.upstream.task)
            self._id = own if taken else interaction_id(self.upstream.task)
        return self._id

    async def _log(self, status: Status, counted: str, fault: str = "") -> None:
        """Put the record on disk, unless there is one. Raises RequestError (503) when the disk refuses."""
        if not self._note(status, fault):
            return
        assert self._logged is not None
        try:
            await asyncio.shield(self._logged)
        except StoreError:
            counted = "503"
            message = "The answer could not be logged, so it is not given; try again."
            raise unavailable(message, "log_unavailable") from None
        finally:
            self._count(counted)

    def _note(self, status: Status, fault: str = "") -> bool:
        """Hand the record to the log, without waiting; False when there is one already."""
        if self._logged is not None:
            return False
        record = self._record(status, fault)
        if nests_deeper(record, MAX_DEPTH):
            record |= {"status": "error", "error": TOO_DEEP, "choices": [], "usage": {}, "metadata": {}}
            record["request"] = {"messages": None, "tools": None, "params": {}}
        try:
            written = self.gateway.wal.append(record)
        except StoreError as error:
            self._logged = asyncio.get_running_loop().create_future()
            self._logged.set_exception(error)
        else:
            self._logged = asyncio.wrap_future(written)
        self._logged.add_done_callback(lambda logged: logged.cancelled() or logged.exception())
        metrics, task = self.gateway.metrics, self.upstream.task
        if fault:
            metrics.upstream_errors.labels(task, fault).inc()
        if status == "ok":
            metrics.latency.labels(task).observe(time.perf_counter() - self.started)
            for kind in ("prompt", "completion"):
                metrics.tokens.labels(task, kind).inc(chat.whole_number(record["usage"].get(f"{kind}_tokens"), 0))
        return True

    def _record(self, status: Status, fault: str) -> dict[str, Any]:
        body, answer = self.envelope.body, self._answer
        metadata = chat.mapping(body.get("metadata"))
        conversation = _named(metadata.get("conversation_id")) or _named(self._asked.get("x-conversation-id"))
        record: dict[str, Any] = {
            "v": 1,
            "kind": "interaction",
            "id": self._name(),
            "task": self.upstream.task,
            "ts": self._ts,
            "conversation_id": conversation,
            "parent_id": _named(metadata.get("parent_id")),
            "user": chat.text(body.get("user")),
            "model": self.envelope.model,
            "request": {
                "messages": body.get("messages"),
                "tools": body.get("tools"),
                "params": chat.params(body),
            },
            "choices": answer.choices if answer is not None else [],
            "release": (answer.model if answer is not None else "") or self.upstream.base,
            "stream": body.get("stream") is True,
            "status": status,
            "usage": answer.usage if answer is not None else {},
            "latency_ms": round((time.perf_counter() - self.started) * 1000, 3),
            "metadata": metadata,
        }
        return record | ({"error": fault} if fault else {})

    def _count(self, status: str) -> None:
        self.gateway.metrics.requests.labels(self.upstream.task, status).inc()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _named(value: Any) -> str | None:
    """An id of the caller's, if it is one that intake keeps."""
    return value if isinstance(value, str) and 0 < len(value) <= chat.MAX_ID else None
