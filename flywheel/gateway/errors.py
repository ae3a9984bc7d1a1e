"""Every refusal in OpenAI's shape, and the outermost wrapper that lets nothing else out.

``{"error": {"message", "type", "param", "code"}}`` with the right status; 429 and 503 say when to come back. What was
not foreseen is a 500 without internals, and the server's log gets the exception's type and place but never its
message, which could quote a prompt.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flywheel.errors import RequestError, without_message

logger = logging.getLogger("flywheel.gateway")

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def unavailable(message: str, code: str, retry_after_s: float = 1.0) -> RequestError:
    """A 503 that is worth another try."""
    return RequestError(message, status=503, code=code, retry_after_s=retry_after_s)


def internal_error() -> RequestError:
    """The 500 that says nothing about the inside."""
    return RequestError("The server had an error while processing your request.", status=500, code="internal_error")


def error_body(error: RequestError) -> dict[str, Any]:
    """The JSON body of an error answer, and of an ``error`` event inside a stream."""
    kind = TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def error_response(error: RequestError) -> JSONResponse:
    """The whole error answer with its headers."""
    return JSONResponse(error_body(error), status_code=error.status, headers=retry_headers(error))


def retry_headers(error: RequestError) -> dict[str, str]:
    """The headers that say when to come back, or with what."""
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
        headers["retry-after-ms"] = str(max(1, math.ceil(error.retry_after_s * 1000)))
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers


def from_validation(error: ValidationError, prefix: str = "") -> RequestError:
    """The first fault of a body as a 400 that names its field. The value itself is never quoted."""
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param = ".".join([prefix, *(str(part) for part in fault["loc"])] if prefix else [str(p) for p in fault["loc"]])
    message = f"{param}: {fault['msg']}" if param else fault["msg"]
    return RequestError(message, code=_code(fault["type"]), param=param or None)


def log_failure(where: str, error: BaseException) -> None:
    """Note an unforeseen exception: its type and the innermost places, without its message."""
    logger.error("%s: %s", where, without_message(error))


def install(app: FastAPI) -> None:
    """Map our errors, and the framework's 404 and 405, to OpenAI's shape."""

    async def ours(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestError)
        return error_response(error)

    async def frameworks(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        codes = {404: "unknown_url", 405: "method_not_allowed"}
        text = f"{error.detail}: {request.method} {request.url.path}" if error.status_code in codes else error.detail
        answer = error_response(RequestError(text, status=error.status_code, code=codes.get(error.status_code)))
        answer.headers.update(error.headers or {})
        return answer

    app.add_exception_handler(RequestError, ours)
    app.add_exception_handler(HTTPException, frameworks)


class Boundary:
    """Gives every request its id, and turns whatever still escapes into a plain 500."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = f"req-{uuid.uuid4().hex}"
        started = False

        async def tagged(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if all(name != b"x-request-id" for name, _ in message["headers"]):  # else an engine's own
                    message = {**message, "headers": [*message["headers"], (b"x-request-id", request_id.encode())]}
            await send(message)

        try:
            await self.app(scope, receive, tagged)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the one outermost boundary: anything else would reach the client
            log_failure(f"{scope['method']} {scope['path']} ({request_id})", error)
            if started:
                raise ConnectionAbortedError(f"answer {request_id} broken off") from None
            await error_response(internal_error())(scope, receive, tagged)


def _code(kind: str) -> str:
    if kind == "missing":
        return "missing_required_parameter"
    if kind == "unsupported":
        return "unsupported_value"
    return "invalid_type" if kind.endswith("_type") else "invalid_value"


__all__ = [
    "Boundary",
    "error_body",
    "error_response",
    "from_validation",
    "install",
    "internal_error",
    "log_failure",
    "retry_headers",
    "unavailable",
]
