"""Probe recordings: the prompts of suite items, in tokens, are the person's words too."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import sqlalchemy as sa

from flywheel.erasure.work import STONES, Work, readable
from flywheel.release.erasing import drop_probes, drop_recording
from flywheel.release.moves import promotion_lock
from flywheel.release.probe import RECORDING, is_recorded
from flywheel.release.releases import recordings
from flywheel.store.files import locked, read_json, remove_tree
from flywheel.store.registry import schema


def erase_probes(work: Work) -> None:
    """Drop the person's probes from every recording, and a recording of which none is left.

    The registry notes the latter, so that a release that has been the champion can still be loaded: see
    ``EmbeddedTarget.probe``.
    """
    for folder in sorted(recordings(work.home, "").glob("*")):
        if folder.name.startswith("."):
            _remove_half_written(work, folder)
        elif is_recorded(work.home, folder.name):
            _erase(work, folder.name)


def _erase(work: Work, release: str) -> None:
    readable(recordings(work.home, release) / RECORDING)
    with work.registry.read() as tx:
        task = tx.scalar(sa.select(schema.releases.c.task).where(schema.releases.c.digest == release))
    tasks = work.tasks if task is None else [task]
    lock = locked(promotion_lock(work.home, task)) if work.apply and task else nullcontext()
    with lock:
        gone, left = drop_probes(work.home, release, lambda source: _goes(work, source, tasks), apply=work.apply)
        work.counts["probes"] += gone
        work.counts["recordings"] += bool(gone and not left)
        if work.apply and gone and not left:
            with work.registry.write() as tx:
                tx.execute(sa.delete(STONES).where(STONES.c.kind == "probes", STONES.c.digest == release))
                work.bury(tx, "probes", release, task=task or "", successor=None, rows=gone)
            drop_recording(work.home, release)


def _goes(work: Work, source: str | None, tasks: list[str]) -> bool:
    """A recording that does not say where its prompts came from is given up as soon as one may be the person's."""
    if source is None:
        return any(work.scope.gone.get(task) for task in tasks)
    return any(work.scope.has(task, source) for task in tasks)


def _remove_half_written(work: Work, folder: Path) -> None:
    """Remove what a killed process left, if it holds prompts of the person."""
    try:
        probes = read_json(folder / RECORDING)["probes"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        return  # no prompts in it yet
    if work.apply and any(_goes(work, probe.get("from"), work.tasks) for probe in probes):
        remove_tree(folder)
