"""Resume points: everything a run needs to go on as if it had never stopped.

A point is a folder ``resume-<step>`` that appears by one rename, so it is whole or not there. It holds the adapter and
the optimizer's moments (safetensors) and the run's counts and curves (JSON). The order of examples follows from seed
and step, so no state of a random generator is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flywheel.errors import CheckpointError
from flywheel.store.files import publish_folder, read_json, remove_tree, write_json

if TYPE_CHECKING:
    from flywheel.engine.core import TrainingCore


@dataclass
class Progress:
    """How far a run is. Curves are lists of (steps done, loss)."""

    step: int = 0
    train: list[tuple[int, float]] = field(default_factory=list)
    val: list[tuple[int, float]] = field(default_factory=list)
    tokens: int = 0
    learned_tokens: int = 0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    resumed: int = 0


def save_point(folder: Path, core: TrainingCore, progress: Progress) -> None:
    """Write the point of ``progress.step`` into a run's folder, then drop the older ones."""
    final = folder / f"resume-{progress.step:08d}"
    temporary = folder / f".resume.{os.getpid()}"
    remove_tree(temporary)
    core.save_state(temporary)
    write_json(temporary / "progress.json", asdict(progress))
    publish_folder(temporary, final)
    for older in points(folder):
        if older != final:
            remove_tree(older)


def load_point(folder: Path, core: TrainingCore, report: Callable[[str], None]) -> Progress:
    """Restore the newest usable point into ``core``; a fresh ``Progress`` when there is none.

    A damaged point is reported and removed: the run then starts earlier, with the same result.
    """
    for point in reversed(points(folder)):
        try:
            raw = read_json(point / "progress.json")
            progress = Progress(**raw)
            core.load_state(point)
        except (CheckpointError, OSError, ValueError, TypeError):
            report(f"{point.name} is damaged; it is removed and the run starts earlier")
            remove_tree(point)
            continue
        progress.train = [(int(step), float(loss)) for step, loss in progress.train]
        progress.val = [(int(step), float(loss)) for step, loss in progress.val]
        progress.resumed += 1
        return progress
    return Progress()


def points(folder: Path) -> list[Path]:
    """The run's resume points, oldest first."""
    return sorted(folder.glob("resume-*"))


def clear(folder: Path, *, leftovers_only: bool = False) -> None:
    """Remove what a killed run left half-written, and unless told otherwise the resume points too."""
    for path in [*folder.glob(".resume.*"), *folder.glob(".publish.*")]:
        remove_tree(path)
    for path in [] if leftovers_only else points(folder):
        remove_tree(path)
