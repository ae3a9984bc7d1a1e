"""Replay: ``sft`` rows of earlier datasets mixed into the new one: learning the new must not unlearn the old.

A row returns only if it is still true (no newer label says otherwise), not held out now, not on the validation side,
and within the same caps as new rows. Targets take turns, so that a rare old answer is replayed as surely as a common
one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flywheel.datasets.caps import Quota
from flywheel.datasets.firewall import Firewall
from flywheel.datasets.prompts import target_text
from flywheel.datasets.rows import SFT, Row
from flywheel.datasets.select import cap_self_generated
from flywheel.datasets.split import links
from flywheel.store.digests import digest


@dataclass(frozen=True)
class Replay:
    """What was drawn, of how many candidates, and why the others could not be."""

    rows: list[Row]
    candidates: int
    dropped: Counter[str]


def candidates(lineage: Sequence[Sequence[Row]]) -> tuple[list[Row], set[str]]:
    """Training rows of earlier datasets, oldest dataset first, each once; and ids of those a newer one contradicts."""
    latest: dict[str, str] = {}
    found: dict[str, Row] = {}
    outdated: set[str] = set()
    for dataset in reversed(lineage):
        taught = [row for row in dataset if row.kind == SFT and row.origin != "anchor"]
        for row in taught:
            if latest.get(row.key, row.target) != row.target:
                outdated.add(row.example_id)
            if row.side == "train":
                found.setdefault(row.example_id, row)
        latest = {row.key: row.target for row in taught} | latest
    return [found[example_id] for example_id in sorted(found)], outdated & found.keys()


def draw(
    old: Sequence[Row],
    new: Sequence[Row],
    *,
    share: float,
    self_share: float,
    seed: str,
    outdated: Collection[str],
    labels: Mapping[str, Mapping[str, Any]],
    firewall: Firewall,
    quota: Quota,
) -> Replay:
    """Draw up to ``share`` of the final training rows from ``old``.

    Args:
        old: candidates with ``cluster_id`` in the same clustering as ``new``.
        new: the new rows of both sides.
        seed: of the window; equal windows draw equal rows.
        outdated: example ids that a newer dataset contradicts.
        labels: current label by interaction id.
        quota: filled by the new rows; a user's old and new rows together stay within the caps.
    """
    train = sum(row.side == "train" and row.kind == SFT for row in new)
    wanted = round(share * train / (1 - share))
    eligible, dropped = [], Counter[str]()
    val_links = {link for row in new if row.side == "val" for link in links(row)}
    targets = {row.key: row.target for row in new if row.kind == SFT}
    relabelled = {row.interaction_id for row in new if row.interaction_id and row.kind == SFT}
    for row in old:
        reason = _obstacle(row, targets, relabelled, outdated, labels) or firewall.reason(row)
        if not reason and val_links.intersection(links(row)):
            reason = "shares_val"
        if reason:
            dropped[reason] += 1
        else:
            eligible.append(row)
    drawn: list[Row] = []
    own_left = int(self_share * wanted)
    for row in _in_turns(eligible, seed):
        if len(drawn) == wanted:
            break
        reason = "self_generated_cap" if row.self_generated and not own_left else quota.refusal(row)
        if reason:
            dropped[reason] += 1
            continue
        own_left -= row.self_generated
        # Only its own label was looked at: what earlier turns taught may have been corrected since.
        drawn.append(replace(row, origin="replay", side="train", learned=()))
    # When human rows ran out before the draw was full, the model's own may be more than their share of it.
    drawn, excess = cap_self_generated(drawn, self_share)
    return Replay(drawn, len(old), dropped + excess)


def _obstacle(
    row: Row,
    targets: Mapping[str, str],
    relabelled: Collection[str],
    outdated: Collection[str],
    labels: Mapping[str, Mapping[str, Any]],
) -> str:
    """Why newer knowledge keeps a row from returning."""
    if row.example_id in outdated or targets.get(row.key, row.target) != row.target:
        return "superseded"
    if row.key in targets or row.interaction_id in relabelled:
        return "in_new"
    label = labels.get(row.interaction_id)
    if label is None:
        return ""
    chosen = target_text({"content": label["chosen"] or ""})
    if label["use"] == "none" or (chosen and chosen != target_text({"content": row.messages[-1].get("content") or ""})):
        return "superseded"
    return ""


def _in_turns(rows: Sequence[Row], seed: str) -> list[Row]:
    """One row of each target, then a second of each, and so on; hashes decide the order within a target and a round."""
    hashed = {row.example_id: digest([seed, row.example_id]) for row in rows}
    strata: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: hashed[row.example_id]):
        strata[row.target].append(row)
    turns = [(turn, hashed[row.example_id], row) for stratum in strata.values() for turn, row in enumerate(stratum)]
    return [row for _, _, row in sorted(turns, key=lambda entry: entry[:2])]
