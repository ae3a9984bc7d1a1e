"""What counts as this machine, and a lock that keeps web pages out of a gateway without keys.

Any page that is open in a browser on this machine may post to a loopback address, without asking first. The browser
names the page's origin in that request, which no page can forge; one from elsewhere is refused. Reading is another
matter: a page whose own name was made to point here may, as far as its browser can tell, and its GET names no origin.
What such a page must not read also looks at the name by which it was asked for.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from flywheel.errors import RequestError
from flywheel.gateway.errors import error_response
from flywheel.gateway.keys import KeyRing


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def asked_by_local_name(headers: Headers) -> bool:
    """Whether the header ``Host`` names this machine by a name that is nobody else's to give."""
    return is_loopback(_host(f"//{headers.get('host', '')}"))


class LocalOrigin:
    """Refuses what a web page from another machine asks of a gateway that demands no key."""

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self.app = app
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        if origin is None or self.keys.required or is_loopback(_host(origin)):
            await self.app(scope, receive, send)
            return
        message = "A web page from elsewhere may not use a gateway without keys; make one: `flywheel keys create NAME`."
        await error_response(RequestError(message, status=403, code="foreign_origin"))(scope, receive, send)


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""
