"""One engine per distinct base model of the tasks, with its target. Importing this loads no torch."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.config import Config
from flywheel.release.releases import Release
from flywheel.store.home import Home
from flywheel.store.registry import Registry

if TYPE_CHECKING:
    from flywheel.engine.engine import Engine
    from flywheel.models import ModelDir
    from flywheel.release.targets.embedded import EmbeddedTarget


@dataclass(frozen=True)
class Backend:
    """A running engine on one base model."""

    model: ModelDir
    engine: Engine
    target: EmbeddedTarget

    @property
    def name(self) -> str:
        """What callers say for the base model: its name, or the last part of the folder that it lies in."""
        return self.model.path.name if Path(self.model.name).is_dir() else self.model.name

    def fits(self, release: Release) -> bool:
        """Whether the release was made for exactly this base, tokenizer and template."""
        return not release.differs_from(self.model)

    async def encode(self, messages: list[dict[str, Any]]) -> list[int]:
        """Token ids of a chat, ready for the answer. Off the event loop, which a long prompt would hold up."""
        return await asyncio.to_thread(self.engine.tokenizer.encode_prompt, messages)

    def close(self) -> None:
        """Stop the engine."""
        self.engine.close()


def start_backend(config: Config, home: Home, registry: Registry, model: ModelDir) -> Backend:
    """Load a base model and start its engine thread."""
    from flywheel.engine.engine import Engine
    from flywheel.models import choose_compute
    from flywheel.release.targets.embedded import EmbeddedTarget

    settings = config.gateway
    engine = Engine(
        model,
        choose_compute(settings.dtype, settings.threads),
        max_rows=settings.max_rows,
        max_context=settings.max_context,
        queue_limit=settings.queue_limit,
    )
    engine.start()
    return Backend(model, engine, EmbeddedTarget(engine, home, registry))
