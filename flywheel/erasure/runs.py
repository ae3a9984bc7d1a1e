"""Working folders of children: unfinished runs on what is erased go, so that nothing goes on from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flywheel.erasure.work import Work
from flywheel.store.files import read_json, remove_tree
from flywheel.store.registry import schema
from flywheel.store.registry.erasures import tainted_checkpoints


def erase_runs(work: Work) -> None:
    """Remove answers to suites that lost items, resume points of trainings on datasets that lost rows, and checkpoints
    of these that were never registered. Finished runs hold digests and counts only. The caller holds the compute lock.
    """
    suites, datasets = work.buried("suite"), work.buried("dataset")
    for folder in sorted(work.home.runs.glob("*")):
        try:
            spec = read_json(folder / "spec.json")
        except (OSError, json.JSONDecodeError):
            continue
        if spec.get("kind") == "evaluate":
            work.counts["runs"] += _evaluation(folder, suites, work.apply)
        elif spec.get("dataset") in datasets or spec.get("init") in _tainted(work, spec.get("task", "")):
            work.counts["runs"] += _training(work, folder)


def _evaluation(folder: Path, suites: set[str], apply: bool) -> bool:
    waves = [path for path in folder.glob("wave-*.json") if _suite(path) in suites]
    for path in [*waves, *folder.glob(".wave-*")] if apply else []:
        path.unlink(missing_ok=True)
    return bool(waves)


def _training(work: Work, folder: Path) -> bool:
    """Whether the run was unfinished, or finished without anybody having taken in what it made."""
    checkpoint = _result(folder).get("checkpoint")
    table = schema.checkpoints
    with work.registry.read() as tx:
        known = tx.scalar(sa.select(table.c.digest).where(table.c.digest == checkpoint)) is not None
    if known:
        return False
    if work.apply:
        if checkpoint:
            remove_tree(work.home.checkpoints / checkpoint)
        remove_tree(folder)
    return True


def _tainted(work: Work, task: str) -> frozenset[str]:
    with work.registry.read() as tx:
        return tainted_checkpoints(tx, task, also=work.taught)


def _suite(wave: Path) -> Any:
    try:
        return read_json(wave)["suite"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        return None


def _result(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = read_json(folder / "result.json")
    except (OSError, json.JSONDecodeError):
        return {}
    return found
