"""Asking the running gateway of a home, as its operator."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import httpx

from flywheel.errors import RequestError
from flywheel.release.replicas import live, operator_token

if TYPE_CHECKING:
    from flywheel.cli.shared import Opened

TIMEOUT_S = 30.0


def gateway_url(o: Opened) -> str | None:
    """Where the gateway of this home answers, or None when none runs."""
    with o.registry.read() as tx:
        replicas = live(tx)
    return replicas[0].url if replicas else None


def call_gateway(o: Opened, method: str, path: str, **request: Any) -> Any:
    """The JSON answer of the gateway; ``request`` is ``json`` or ``params``, as httpx takes them.

    Raises RequestError: no gateway runs, it does not answer, or it refuses.
    """
    url, token = gateway_url(o), operator_token(o.home)  # both are new when the gateway has started again
    if url is None:
        raise RequestError("no gateway runs on this home; start one with `flywheel up` or `flywheel serve`")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = _http().request(method, f"{url}{path}", headers=headers, **request)
    except httpx.HTTPError as error:
        raise RequestError(f"the gateway at {url} does not answer ({type(error).__name__})") from error
    try:
        found = answer.json()
    except ValueError:
        found = {}
    if not answer.is_success:
        raise RequestError(found.get("error", {}).get("message", f"the gateway answered {answer.status_code}"))
    return found


@cache
def _http() -> httpx.Client:
    """One for the whole command: to make one takes longer than to ask."""
    # trust_env=False: a proxy of the environment must not come between processes of one machine.
    return httpx.Client(timeout=TIMEOUT_S, trust_env=False)
