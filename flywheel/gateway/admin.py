"""The operator's routes: load, probe, route, unload, rotate, status. What ``release.replicas.ReplicaClient`` calls.

Their work is done on threads, so that requests are answered all the while; refusals keep their reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request

from flywheel.errors import ConfigError, FlywheelError, PromotionRefused, RequestError, StoreError
from flywheel.gateway.bodies import read_object
from flywheel.gateway.state import Gateway

T = TypeVar("T")


def admin_routes(gateway: Gateway) -> APIRouter:
    """The routes below ``/admin``; every one needs the scope ``operate``."""
    router = APIRouter(prefix="/admin")
    replica = gateway.replica

    async def argument(request: Request, name: str) -> str:
        await gateway.keys.authorize(request.headers.get("authorization"), "operate")
        body = await read_object(request)
        value = body.get(name)
        if not isinstance(value, str) or not value:
            raise RequestError(f"{name}: required, a string", code="missing_required_parameter", param=name)
        return value

    @router.post("/load")
    async def load(request: Request) -> dict[str, Any]:
        return await _do(replica.load, await argument(request, "release"))

    @router.post("/probe")
    async def probe(request: Request) -> dict[str, Any]:
        report = await _do(replica.probe, await argument(request, "release"))
        return report.to_json()

    @router.post("/route")
    async def route(request: Request) -> dict[str, Any]:
        return await _do(replica.follow, await argument(request, "task"))

    @router.post("/unload")
    async def unload(request: Request) -> dict[str, Any]:
        name = await argument(request, "name")
        await _do(replica.unload, name)
        return {"unloaded": name}

    @router.post("/rotate")
    async def rotate(request: Request) -> dict[str, Any]:
        await gateway.keys.authorize(request.headers.get("authorization"), "operate")
        try:
            await asyncio.to_thread(gateway.wal.rotate)
        except StoreError as error:
            raise RequestError(str(error), status=409, code="refused") from error
        return {"rotated": True}

    @router.get("/status")
    async def status(request: Request) -> dict[str, Any]:
        await gateway.keys.authorize(request.headers.get("authorization"), "operate")
        return await asyncio.to_thread(replica.status)

    return router


async def _do(work: Callable[[str], T], value: str) -> T:
    try:
        return await asyncio.to_thread(work, value)
    except (ConfigError, PromotionRefused) as error:
        raise RequestError(str(error), status=404, code="not_found") from error
    except FlywheelError as error:
        raise RequestError(str(error), status=409, code="refused") from error
