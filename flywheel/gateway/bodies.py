"""Reading a request's JSON body: bounded, strict, and valid Unicode all the way down."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from fastapi import Request
from starlette.requests import ClientDisconnect

from flywheel.errors import RequestError

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 64


async def read_json(request: Request) -> Any:
    """The parsed body, as ``read_body`` gives it and ``parse_json`` reads it."""
    return parse_json(await read_body(request))


async def read_object(request: Request) -> dict[str, Any]:
    """The parsed body, which must be a JSON object."""
    return parse_object(await read_body(request))


def parse_json(body: bytes) -> Any:
    """What a body says.

    Raises RequestError (400) for anything that is not UTF-8 JSON, holds NaN, infinities or half a surrogate pair, or
    nests deeper than 64 levels.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise _bad("the body is not UTF-8") from None
    except RequestError:  # from _no_constant
        raise
    except json.JSONDecodeError as error:
        raise _bad(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise _bad("nesting too deep" if isinstance(error, RecursionError) else "a number is out of range") from None
    _check(value)
    return value


def parse_object(body: bytes) -> dict[str, Any]:
    """The same for a body that must be a JSON object."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise RequestError(f"the body must be a JSON object, found {_kind(value)}", code="invalid_type")
    return value


async def read_body(request: Request, limit: int = MAX_BODY_BYTES) -> bytes:
    """The bytes of a body. Raises RequestError: 413 above the limit, 400 when the connection closed before its end."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
    except ClientDisconnect:
        raise _bad("the connection closed before the body was complete") from None
    return b"".join(parts)


def finite(text: str) -> float | None:
    """A number of somebody else's JSON, which is read but not judged; None when it is out of range."""
    value = float(text)
    return value if math.isfinite(value) else None


def nests_deeper(root: Any, most: int) -> bool:
    """Whether there is a value inside more than ``most`` objects and lists. Without recursion."""
    level: list[Any] = [root]
    for _ in range(most + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        if not below:
            return False
        level = below
    return True


def _check(root: Any) -> None:
    """Without recursion: depth, surrogates and infinities such as ``1e999``."""
    level: list[Any] = [root]
    for depth in range(MAX_DEPTH + 1):
        if not level:
            return
        if depth == MAX_DEPTH:
            raise _bad(f"nesting deeper than {MAX_DEPTH} levels")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.keys())
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str) and not value.isascii():
                try:
                    value.encode("utf-8")
                except UnicodeEncodeError:
                    raise _bad("a string holds half of a surrogate pair, which is not valid Unicode") from None
            elif isinstance(value, float) and value - value != 0.0:
                raise _bad("a number is out of range")
        level = below


def _no_constant(name: str) -> NoReturn:
    raise _bad(f"{name} is not JSON")


def _bad(what: str) -> RequestError:
    return RequestError(f"The request body is not valid JSON: {what}.", code="invalid_json")


def _too_large(limit: int) -> RequestError:
    return RequestError(f"The request body exceeds {limit} bytes.", status=413, code="request_too_large")


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
