"""``POST /v1/chat/completions``: resolve, admit, answer whole or as a stream; or pass on to a task's own engine."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from flywheel.errors import CheckpointError, FlywheelError, ProbeFailed, RequestError
from flywheel.gateway.bodies import parse_object, read_body
from flywheel.gateway.call import Call, ClientGone
from flywheel.gateway.chat import parse_chat
from flywheel.gateway.errors import error_response, internal_error, unavailable
from flywheel.gateway.keys import Principal
from flywheel.gateway.metrics import BASE, UNKNOWN
from flywheel.gateway.relay import Relay
from flywheel.gateway.routing import VERSION, not_found
from flywheel.gateway.state import Gateway
from flywheel.gateway.streaming import EventStream
from flywheel.store.digests import short


async def chat_completions(gateway: Gateway, request: Request) -> Response:
    """The endpoint. Refusals are counted here; what was admitted counts and logs itself."""
    started = time.perf_counter()
    label = UNKNOWN
    try:
        principal = await gateway.keys.authorize(request.headers.get("authorization"), "infer")
        raw = await read_body(request)
        if gateway.wal.failing():
            raise unavailable("Answers cannot be logged just now; try again.", "log_unavailable")
        if (found := gateway.upstreams.addressed(raw)) is not None:
            return Relay(gateway, *found, request, started)
        chat = parse_chat(parse_object(raw))
        if gateway.router.find(chat.model) is None:
            await _fetch(gateway, chat.model, principal)
        with gateway.router.pinned(chat.model) as route:
            if route is None:
                raise not_found(chat.model, "it was unloaded just now")
            label = route.task or BASE
            conversation = (chat.metadata or {}).get("conversation_id") or request.headers.get("x-conversation-id")
            call = Call(gateway, chat, route, conversation or None, started)
            await call.admit()
    except RequestError as error:
        gateway.metrics.requests.labels(label, str(error.status)).inc()
        return error_response(error)
    headers = {"x-flywheel-release": call.route.digest}
    if chat.stream:
        return EventStream(call, headers)
    return await _whole(call, request, headers)


async def _fetch(gateway: Gateway, model: str, principal: Principal) -> None:
    """Load a known version that is not loaded, for those who may; a 404 for everyone and everything else."""
    version = VERSION.match(model)
    tasks = gateway.config.embedded
    if version is None or version["task"] not in tasks:
        raise not_found(model, "GET /v1/models lists what can be asked for")
    release = await asyncio.to_thread(gateway.replica.find, version["task"], version["prefix"])
    if release is None:
        raise not_found(model, "no release, or more than one, has this digest")
    if not principal.allows("operate"):
        raise not_found(model, "this release is not loaded")
    try:
        await asyncio.to_thread(gateway.replica.load, release.digest)
        report = await asyncio.to_thread(gateway.replica.probe, release.digest)
    except (CheckpointError, ProbeFailed) as error:
        raise unavailable(f"{model} cannot be loaded: {error}", "release_unavailable", 5.0) from error
    except FlywheelError as error:
        raise not_found(model, str(error)) from error
    if not report.passed:
        raise unavailable(f"{model} failed its probe: {'; '.join(report.failures)}", "release_unavailable", 5.0)


async def _whole(call: Call, request: Request, headers: dict[str, str]) -> Response:
    watcher = asyncio.create_task(call.watch(request.receive))
    try:
        async for _ in call.texts():
            pass
        await call.finish()
    except ClientGone:
        call.abandon("cancelled")
        return Response(status_code=499)  # for our own log: nobody reads it
    except RequestError as error:
        call.abandon("error", error)
        return error_response(error)
    except asyncio.CancelledError:
        call.abandon("cancelled")
        raise
    except BaseException:
        call.abandon("error", internal_error())
        raise
    finally:
        watcher.cancel()
    return JSONResponse(_completion(call), headers=headers)


def _completion(call: Call) -> dict[str, Any]:
    return {
        "id": call.id,
        "object": "chat.completion",
        "created": call.created,
        "model": call.route.served,
        "system_fingerprint": short(call.route.digest),
        "choices": [{**choice.to_json(), "logprobs": None} for choice in call.choices],
        "usage": call.usage,
    }
