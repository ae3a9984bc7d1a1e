"""Anchors: the operator's own examples of what the model must not forget, a few of them in every dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flywheel.datasets.files import read_jsonl
from flywheel.datasets.firewall import Firewall
from flywheel.datasets.rows import SFT, Row
from flywheel.datasets.split import links
from flywheel.store.digests import digest
from flywheel.store.home import Home


@dataclass(frozen=True)
class Anchors:
    """What was drawn, of how many rows of the file, and why others could not be."""

    rows: list[Row]
    candidates: int
    dropped: Counter[str]


def read_anchors(home: Home, path: str | None, prompt: str | None) -> list[Row]:
    """The rows of an anchors file, each once; none without a file. Raises DatasetError as `read_jsonl` does."""
    if path is None:
        return []
    found = {row.example_id: replace(row, origin="anchor") for row in read_jsonl(home, Path(path), prompt)}
    return [found[name] for name in sorted(found)]


def draw_anchors(
    anchors: Sequence[Row], rows: Sequence[Row], *, share: float, seed: str, firewall: Firewall
) -> Anchors:
    """Draw anchors up to ``share`` of the final training rows, other ones in each window.

    An anchor yields to what the new rows teach about the same prompt, to the firewall and to the validation side.

    Args:
        anchors: with ``cluster_id`` in the same clustering as ``rows``.
        rows: all others of both sides.
        seed: of the window; equal windows draw equal rows.
    """
    train = sum(row.side == "train" and row.kind == SFT for row in rows)
    wanted = round(share * train / (1 - share))
    taught = {row.key for row in rows if row.kind == SFT}
    held = {link for row in rows if row.side == "val" for link in links(row)}
    eligible: list[Row] = []
    dropped: Counter[str] = Counter()
    for row in anchors:
        reason = _obstacle(row, taught, held) or firewall.reason(row)
        if reason:
            dropped[reason] += 1
        else:
            eligible.append(row)
    eligible.sort(key=lambda row: digest([seed, "anchor", row.example_id]))
    return Anchors([replace(row, side="train") for row in eligible[:wanted]], len(anchors), dropped)


def _obstacle(row: Row, taught: Collection[str], held: Collection[tuple[str, str]]) -> str:
    if row.key in taught:
        return "in_new"
    return "shares_val" if any(link in held for link in links(row)) else ""
