"""``GET /review``: a page where a person labels the audit sample, and the items for it behind a key.

The page itself holds no data. Its script asks for the items with the key that the person typed in, and posts what they
say to ``/v1/feedback``. The key travels in a header and never in a cookie, so that no other page can use it. Whatever
comes from the log is set as text, and the headers forbid every script but the page's own.
"""

from __future__ import annotations

import json
import secrets
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from flywheel.config import Config
from flywheel.errors import RequestError
from flywheel.gateway.loopback import asked_by_local_name
from flywheel.gateway.review_read import QUEUE_LIMIT
from flywheel.gateway.state import Gateway

PAGES = Path(__file__).parent / "pages"
NONCE = "{{nonce}}"
LONGEST_NAME = 200

_POLICY = (
    "default-src 'none'; script-src 'nonce-{{nonce}}'; style-src 'nonce-{{nonce}}'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
_PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
_PAGE = {**_PRIVATE, "x-frame-options": "DENY", "cross-origin-opener-policy": "same-origin"}


def review_routes(gateway: Gateway) -> APIRouter:
    """The routes below ``/review``; the items need the scope ``review``."""
    router = APIRouter(prefix="/review")

    @router.get("")
    async def page() -> Response:
        nonce = secrets.token_urlsafe(16)
        headers = {**_PAGE, "content-security-policy": _POLICY.replace(NONCE, nonce)}
        return Response(_page().replace(NONCE, nonce), media_type="text/html", headers=headers)

    @router.get("/items")
    async def items(request: Request) -> Response:
        if not gateway.keys.required and not asked_by_local_name(request.headers):
            message = "Without keys the queue is for this machine alone; make one: `flywheel keys create NAME`."
            raise RequestError(message, status=403, code="foreign_origin")
        await gateway.keys.authorize(request.headers.get("authorization"), "review")
        asked = request.query_params
        task = _task(asked.get("task"), gateway.config)
        found = await gateway.desk.next_items(task, _author(asked.get("author")), _limit(asked.get("limit", "20")))
        # ASCII: a log may hold halves of surrogate pairs, which have no UTF-8 form.
        return Response(json.dumps({"task": task, **found}), media_type="application/json", headers=_PRIVATE)

    return router


@cache
def _page() -> str:
    """The page with its style and its script, so that it is one document."""
    text = (PAGES / "review.html").read_text(encoding="utf-8")
    for name in ("review.css", "review_sitting.js", "review.js"):
        text = text.replace(f"{{{{{name}}}}}", (PAGES / name).read_text(encoding="utf-8"))
    return text


def _task(asked: str | None, config: Config) -> str:
    tasks = sorted(config.tasks)
    if asked is None and len(tasks) == 1:
        return tasks[0]
    if asked is None or asked not in config.tasks:
        what, code = ("required", "missing_required_parameter") if asked is None else ("unknown", "invalid_value")
        raise RequestError(f"task: {what}; one of {', '.join(tasks)}", code=code, param="task")
    return asked


def _author(asked: str | None) -> str:
    if asked is None or not asked.strip() or len(asked) > LONGEST_NAME:
        message = f"author: required, the reviewer's name in at most {LONGEST_NAME} characters"
        raise RequestError(message, code="invalid_value", param="author")
    return asked.strip()


def _limit(asked: str) -> int:
    if not asked.isdecimal() or not 1 <= int(asked) <= QUEUE_LIMIT:
        raise RequestError(f"limit: a number from 1 to {QUEUE_LIMIT}", code="invalid_value", param="limit")
    return int(asked)
