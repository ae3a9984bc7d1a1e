"""Tasks that an engine answers which is not ours: their log and labels are kept, and no loop turns for them yet."""

from __future__ import annotations

from flywheel.config import Config
from flywheel.errors import ConfigError


def answered_elsewhere(config: Config, task: str) -> str:
    """Why no loop can turn for a task; "" when one can."""
    engine = config.task(task).engine
    if engine is None:
        return ""
    return (
        f"task {task} is answered by engine {engine}; its log and labels are kept, promotion into it is not there yet"
    )


def refuse_elsewhere(config: Config, task: str) -> None:
    """Raise ConfigError for a task for which no loop can turn."""
    if reason := answered_elsewhere(config, task):
        raise ConfigError(reason)
