"""Answers as server-sent events, in OpenAI's chunks.

The chunk that says a choice is finished, and ``[DONE]``, are sent only once the whole answer is on disk. A failure on
the way is a ``data: {"error": ...}`` event and then the end, without ``[DONE]``: never a silent truncation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from flywheel.errors import RequestError
from flywheel.gateway.call import Call, ClientGone
from flywheel.gateway.errors import error_body, error_response, internal_error
from flywheel.store.digests import short


class EventStream(Response):
    """The streamed answer of one call. Its status line goes out with the first event, so an early failure still has
    its own status."""

    media_type = "text/event-stream"

    def __init__(self, call: Call, headers: dict[str, str]) -> None:
        self.call = call
        self.status_code = 200
        self.background = None
        self.init_headers({**headers, "cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call, begun = self.call, False
        watcher = asyncio.create_task(call.watch(receive))
        try:
            async for block in self._blocks():
                if not begun:
                    begun = True
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ClientGone:
            call.abandon("cancelled")
        except RequestError as error:
            call.abandon("error", error)
            if begun:
                await send({"type": "http.response.body", "body": _event(error_body(error)), "more_body": False})
            else:
                await error_response(error)(scope, receive, send)
        except asyncio.CancelledError:
            call.abandon("cancelled")
            raise
        except BaseException:
            call.abandon("error", internal_error())
            raise
        finally:
            watcher.cancel()

    async def _blocks(self) -> AsyncIterator[bytes]:
        call = self.call
        greeted: set[int] = set()
        async for index, text in call.texts():
            delta = {"content": text}
            if index not in greeted:
                greeted.add(index)
                delta = {"role": "assistant", **delta}
            yield self._chunk([_choice(index, delta, None)])
        await call.finish()
        for choice in call.choices:
            last: dict[str, str] = {} if choice.index in greeted else {"role": "assistant", "content": ""}
            yield self._chunk([_choice(choice.index, last, choice.finish_reason)])
        if call.request.include_usage:
            yield self._chunk([], usage=call.usage)
        yield b"data: [DONE]\n\n"

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
        call = self.call
        chunk: dict[str, Any] = {
            "id": call.id,
            "object": "chat.completion.chunk",
            "created": call.created,
            "model": call.route.served,
            "system_fingerprint": short(call.route.digest),
            "choices": choices,
        }
        if call.request.include_usage:
            chunk["usage"] = usage
        return _event(chunk)


def _choice(index: int, delta: dict[str, str], finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
