"""The Dagster resource that opens a deployment: its configuration, home and registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg

from flywheel.config import Config, load_config
from flywheel.store.home import Home
from flywheel.store.registry import Registry


@dataclass(frozen=True)
class Opened:
    """An open deployment."""

    config: Config
    home: Home
    registry: Registry


class Deployment(dg.ConfigurableResource):  # type: ignore[type-arg]  # its own value is what assets receive
    """Where ``flywheel.yaml`` is; empty means ``FLYWHEEL_CONFIG`` or ``./flywheel.yaml``."""

    config_path: str = ""

    @contextmanager
    def open(self, actor: str) -> Iterator[Opened]:
        """Open the deployment for one step or tick; ``actor`` is written into every row."""
        config = load_config(self.config_path or None)
        registry = Registry.of(config, actor=actor)
        try:
            yield Opened(config, Home.of(config), registry)
        finally:
            registry.close()
