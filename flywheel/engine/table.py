"""Which adapters are loaded, who uses them, and which are on their way out. The engine guards it with its lock."""

from __future__ import annotations

from dataclasses import dataclass

from flywheel.engine.lora import Live
from flywheel.errors import CheckpointError, RequestError


@dataclass
class _Entry:
    live: Live
    users: int = 0
    retired: bool = False


class AdapterTable:
    """Names to adapters, with reference counts. A name means the same weights for as long as it is in the table."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def add(self, name: str, live: Live) -> bool:
        """Enter an adapter; false if it is there already: a retired one then serves again.

        CheckpointError when the name stands for other weights.
        """
        entry = self._entries.get(name)
        if entry is None:
            self._entries[name] = _Entry(live)
            return True
        if entry.live.adapter.weights_digest != live.adapter.weights_digest or (
            entry.live.adapter.config.scale != live.adapter.config.scale
        ):
            raise CheckpointError(
                f"adapter name {name!r} already stands for weights {entry.live.adapter.weights_digest[:12]}, "
                f"not {live.adapter.weights_digest[:12]}; names are never reused"
            )
        entry.retired = False
        return False

    def pin(self, name: str | None) -> None:
        """Count one more user. RequestError (404) for a name that takes no requests."""
        if name is not None:
            self._serving(name).users += 1

    def unpin(self, name: str | None) -> bool:
        """Count one user less; whether a retired adapter has none now."""
        if name is None:
            return False
        entry = self._entries[name]
        entry.users -= 1
        return entry.retired and entry.users == 0

    def retire(self, name: str) -> bool:
        """Take no new requests; whether it can be dropped at once."""
        entry = self._entries.get(name)
        if entry is None:
            return False
        entry.retired = True
        return entry.users == 0

    def remove_unused(self, name: str) -> bool:
        """Forget a retired adapter that nobody uses; whether it was one."""
        entry = self._entries.get(name)
        if entry is None or not entry.retired or entry.users:
            return False
        del self._entries[name]
        return True

    def live(self, name: str) -> Live:
        """The adapter under a name. RequestError (404) if it takes no requests."""
        return self._serving(name).live

    def require(self, name: str | None) -> None:
        """RequestError (404) unless the name can be served."""
        if name is not None:
            self._serving(name)

    def names(self) -> list[str]:
        """Names that take requests, sorted."""
        return sorted(name for name, entry in self._entries.items() if not entry.retired)

    def _serving(self, name: str) -> _Entry:
        entry = self._entries.get(name)
        if entry is None or entry.retired:
            raise RequestError(f"no adapter {name!r} is loaded", status=404, code="model_not_found", param="model")
        return entry
