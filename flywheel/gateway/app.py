"""The ASGI application over one gateway's parts."""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from flywheel.gateway.admin import admin_routes
from flywheel.gateway.completions import chat_completions
from flywheel.gateway.errors import Boundary, install
from flywheel.gateway.feedback import post_feedback
from flywheel.gateway.listing import list_models, one_model
from flywheel.gateway.loopback import LocalOrigin
from flywheel.gateway.otlp import otlp_routes
from flywheel.gateway.review import review_routes
from flywheel.gateway.routing import Down
from flywheel.gateway.state import Gateway


def create_app(gateway: Gateway) -> FastAPI:
    """All routes. Bodies are checked by the endpoints themselves, so that every refusal has OpenAI's shape."""
    app = FastAPI(title="Flywheel gateway", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(LocalOrigin, keys=gateway.keys)
    app.add_middleware(Boundary)  # added last: it is the outermost
    install(app)
    created = int(time.time())

    async def any_key(request: Request) -> None:
        await gateway.keys.authorize(request.headers.get("authorization"), None)

    @app.post("/v1/chat/completions")
    async def completions(request: Request) -> Response:
        return await chat_completions(gateway, request)

    @app.post("/v1/feedback")
    async def feedback(request: Request) -> Response:
        return await post_feedback(gateway, request)

    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        await any_key(request)
        return {"object": "list", "data": list_models(gateway.router, gateway.upstreams.by_task, created)}

    @app.get("/v1/models/{name:path}")
    async def model(request: Request, name: str) -> dict[str, Any]:
        await any_key(request)
        return one_model(gateway.router, gateway.upstreams.by_task, name, created)

    @app.get("/healthz")
    async def healthz(response: Response) -> dict[str, Any]:
        down = sorted(name for name, entry in gateway.router.table.items() if isinstance(entry, Down))
        ready = gateway.replica.state == "ready" and not down and not gateway.wal.failing()
        response.status_code = 200 if ready else 503
        health = {"status": "ok" if ready else "degraded", "state": gateway.replica.state, "down": down}
        # An engine that is not ours has its own health check: here is only what the last request found.
        found = {None: "unknown", True: "reachable", False: "unreachable"}
        upstream = {task: found[engine.reachable] for task, engine in gateway.upstreams.by_task.items()}
        return health | ({"upstream": upstream} if upstream else {})

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        await gateway.keys.authorize(request.headers.get("authorization"), "read")
        gateway.metrics.observe_routes(gateway.router.table, gateway.config.embedded)
        return Response(gateway.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    app.include_router(otlp_routes(gateway))
    app.include_router(review_routes(gateway))
    app.include_router(admin_routes(gateway))
    return app
