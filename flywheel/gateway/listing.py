"""``GET /v1/models``: tasks, their loaded releases, and base models, each with what it stands on.

Of a task with an engine of its own only the task is listed, with the name that its model has there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.gateway.routing import Down, Route, Router, not_found
from flywheel.gateway.upstream import Upstream

OWNER = "flywheel"


def list_models(router: Router, upstreams: Mapping[str, Upstream], created: int) -> list[dict[str, Any]]:
    """Model objects sorted by id; ``root`` is the immutable name that answers, ``parent`` the base model."""
    entries = {**router.table, **upstreams}
    return [_describe(name, entries[name], created) for name in sorted(entries)]


def one_model(router: Router, upstreams: Mapping[str, Upstream], name: str, created: int) -> dict[str, Any]:
    """One model object. Raises RequestError (404) for a name that does not exist."""
    entry = upstreams.get(name) or router.table.get(name)
    if entry is None:
        raise not_found(name, "GET /v1/models lists what can be asked for")
    return _describe(name, entry, created)


def _describe(name: str, entry: Route | Down | Upstream, created: int) -> dict[str, Any]:
    model: dict[str, Any] = {"id": name, "object": "model", "created": created, "owned_by": OWNER}
    if isinstance(entry, Down):
        return {**model, "root": None, "parent": None}
    if isinstance(entry, Upstream):
        return {**model, "root": entry.base, "parent": None}
    if entry.release is None:
        return {**model, "root": entry.served, "parent": None}
    return {**model, "root": entry.served, "parent": entry.backend.name, "release": entry.digest}
