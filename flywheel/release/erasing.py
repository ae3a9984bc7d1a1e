"""Probe recordings without the prompts of an erased person: their token ids are that person's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flywheel.release.probe import RECORDING, ROWS, rows_digest
from flywheel.release.releases import recordings
from flywheel.store.files import read_json, remove_tree, write_atomic, write_json
from flywheel.store.home import Home

Goes = Callable[[str | None], bool]
"""Whether a probe goes, by the interaction that it came from; None when the recording does not say (an older one)."""


def drop_probes(home: Home, release: str, goes: Goes, *, apply: bool = True) -> tuple[int, int]:
    """Take probes out of a release's recording; returns how many went and how many stay.

    At every instant what lies there is a whole recording. With no probe left, nothing is written: see
    ``drop_recording``.
    """
    folder = recordings(home, release)
    recorded = read_json(folder / RECORDING)
    probes = [probe | {"row": str(probe.get("row", n))} for n, probe in enumerate(recorded["probes"])]
    kept = [probe for probe in probes if not goes(probe.get("from"))]
    if apply and kept:
        if len(kept) < len(probes):
            write_json(folder / RECORDING, recorded | {"probes": kept, "rows_digest": rows_digest(folder, kept)})
        _drop_rows(home, release, kept)
    return len(probes) - len(kept), len(kept)


def drop_recording(home: Home, release: str) -> None:
    """Remove a recording: before the release is loaded anew it must be recorded anew."""
    remove_tree(recordings(home, release))


def _drop_rows(home: Home, release: str, kept: list[dict[str, Any]]) -> None:
    """Leave only the rows of the probes that stay, also where a crash came between the two files."""
    from safetensors.numpy import load_file, save

    path = recordings(home, release) / ROWS
    rows, names = load_file(path), {probe["row"] for probe in kept}
    if rows.keys() - names:
        write_atomic(path, save({name: row for name, row in rows.items() if name in names}))
