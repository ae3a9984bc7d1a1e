"""The routing table: model name -> release -> backend, one immutable mapping replaced in one assignment.

A request resolves once, when it is admitted, and is answered from start to end by the release it found. Readers take
no lock; whoever changes the table builds the next one and assigns it.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flywheel.errors import RequestError
from flywheel.gateway.errors import unavailable

if TYPE_CHECKING:
    from flywheel.gateway.backends import Backend
    from flywheel.release.releases import Release

VERSION = re.compile(r"(?P<task>[a-z][a-z0-9_]*)@(?P<prefix>[0-9a-f]{6,64})\Z")


@dataclass(frozen=True)
class Route:
    """What answers a model name.

    Attributes:
        release: the release, or None for the base model itself: no adapter, no system prompt, no task.
        version: the champion pointer's version that put it here; 0 for what is loaded but not routed by a task name.
    """

    backend: Backend
    release: Release | None
    version: int = 0

    @property
    def task(self) -> str:
        """The task answered for; "" for calls to the base model."""
        return self.release.task if self.release is not None else ""

    @property
    def digest(self) -> str:
        """What the log row names: the release, or the base model's own digest."""
        return self.release.digest if self.release is not None else self.backend.model.base_digest

    @property
    def served(self) -> str:
        """The immutable name that answers carry."""
        return self.release.name if self.release is not None else self.backend.name

    @property
    def adapter(self) -> str | None:
        """The engine's adapter, or None."""
        return self.release.adapter if self.release is not None else None

    def with_prompt(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages as the model sees them."""
        return self.release.with_prompt(messages) if self.release is not None else messages

    def default(self, name: str, otherwise: Any) -> Any:
        """A sampling default of the release."""
        return self.release.sampling.get(name, otherwise) if self.release is not None else otherwise


@dataclass(frozen=True)
class Down:
    """A task whose champion cannot be served here, and why."""

    reason: str


Table = Mapping[str, "Route | Down"]


class Router:
    """Holds the table. Names: tasks, ``task@digest`` of what is loaded, base models."""

    def __init__(self) -> None:
        self.table: Table = MappingProxyType({})
        self._changing = threading.Lock()
        self._pins: Counter[str] = Counter()

    def put(self, entries: Mapping[str, Route | Down]) -> None:
        """Add or replace entries, all visible at once."""
        with self._changing:
            self.table = MappingProxyType({**self.table, **entries})

    def drop(self, name: str) -> None:
        """Take one name out of the table."""
        with self._changing:
            self.table = MappingProxyType({key: value for key, value in self.table.items() if key != name})

    def find(self, model: str) -> Route | None:
        """The route of a name as it is now; None when the table has none.

        Raises RequestError: 503 for a task that is down, 404 for a prefix of several loaded releases.
        """
        table = self.table
        entry = table.get(model)
        if isinstance(entry, Down):
            raise unavailable(f"{model} cannot be answered now: {entry.reason}", "champion_unavailable", 5.0)
        if entry is not None:
            return entry
        version = VERSION.match(model)
        if version is None:
            return None
        found = {
            route.digest: route
            for name, route in table.items()
            if isinstance(route, Route)
            and name == route.served
            and route.task == version["task"]
            and route.digest.startswith(version["prefix"])
        }
        if len(found) > 1:
            raise not_found(model, f"the prefix fits {len(found)} releases; give more digits")
        return next(iter(found.values()), None)

    @contextmanager
    def pinned(self, model: str) -> Iterator[Route | None]:
        """Resolve a name and keep what it found loaded until the request is in the engine's hands."""
        with self._changing:
            route = self.find(model)
            if route is not None:
                self._pins[route.served] += 1
        try:
            yield route
        finally:
            if route is not None:
                with self._changing:
                    self._pins[route.served] -= 1

    def wait_unpinned(self, served: str, timeout_s: float = 10.0) -> None:
        """Wait until no request is between resolving ``served`` and the engine; it must be out of the table."""
        deadline = time.monotonic() + timeout_s
        while self._pins[served] and time.monotonic() < deadline:
            time.sleep(0.01)

    def releases(self, task: str) -> dict[str, Route]:
        """The loaded releases of a task, by served name."""
        return {
            name: route
            for name, route in self.table.items()
            if isinstance(route, Route) and route.task == task and name == route.served
        }


def not_found(model: str, why: str) -> RequestError:
    """The 404 of a model name."""
    message = f"The model `{model}` does not exist: {why}."
    return RequestError(message, status=404, code="model_not_found", param="model")
