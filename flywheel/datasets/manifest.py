"""A dataset's digest and manifest: what is in it, what was dropped and why. Counts and digests only, no text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from flywheel.datasets.caps import largest_user_share
from flywheel.datasets.firewall import WARN_SHARE
from flywheel.datasets.rows import KINDS, SFT, Row, content
from flywheel.store.digests import digest, rows_digest
from flywheel.store.tables import SCHEMA_VERSION

TOP_TARGETS = 50
ORIGINS = ("new", "replay", "anchor")


def dataset_rows_digest(columns: Iterable[dict[str, Any]]) -> str:
    """Digest of stored rows by example id, whatever their order."""
    return rows_digest((row["example_id"], content(row)) for row in columns)


def dataset_digest(task: str, parent: str | None, policies: Sequence[str], rows: str) -> str:
    """A dataset's name: its rows, the policies that made them, and the dataset that the champion was trained on."""
    return digest(
        {
            "schema_version": SCHEMA_VERSION,
            "task": task,
            "parent": parent,
            "policies": sorted(set(policies)),
            "rows": rows,
        }
    )


def row_counts(rows: Sequence[Row]) -> dict[str, int]:
    """``sft`` rows by side and origin: what supervised fine-tuning learns."""
    taught = [row for row in rows if row.kind == SFT]
    sides, origins = Counter(row.side for row in taught), Counter(row.origin for row in taught)
    return {"train": sides["train"], "val": sides["val"], **{name: origins[name] for name in ORIGINS}}


def kind_counts(rows: Sequence[Row]) -> dict[str, int]:
    """Rows by kind, both sides together."""
    counts = Counter(row.kind for row in rows)
    return {kind: counts[kind] for kind in KINDS}


def target_counts(rows: Sequence[Row]) -> dict[str, Any]:
    """How often each target of ``sft`` rows occurs, most frequent first, without saying what they are."""
    counts = Counter(row.target for row in rows if row.kind == SFT)
    return {"distinct": len(counts), "top": sorted(counts.values(), reverse=True)[:TOP_TARGETS]}


def own_counts(rows: Sequence[Row]) -> dict[str, Any]:
    """How many ``sft`` rows have a target that a model wrote, and their share."""
    taught = [row for row in rows if row.kind == SFT]
    own = sum(row.self_generated for row in taught)
    return {"rows": own, "share": round(own / len(taught), 6) if taught else 0.0}


def firewall_counts(stopped: int, screened: int) -> dict[str, Any]:
    """What the firewall stopped of the rows it saw; ``warn`` above 10 %."""
    share = stopped / screened if screened else 0.0
    return {"stopped": stopped, "screened": screened, "share": round(share, 6), "warn": share > WARN_SHARE}


def make_manifest(
    *,
    task: str,
    parent: str | None,
    lineage: Sequence[str],
    policies: Sequence[str],
    columns: Sequence[dict[str, Any]],
    rows: Sequence[Row],
    considered: int,
    dropped: Counter[str],
    caps: dict[str, Any],
    firewall: dict[str, Any],
    replay: dict[str, Any],
    anchors: dict[str, Any],
    redaction: Counter[str],
    window: Sequence[int] | None,
    notes: Sequence[str],
) -> dict[str, Any]:
    """The manifest of finished rows. ``considered`` = all of ``kinds`` with origin ``new`` + all of ``dropped``."""
    fingerprint = dataset_rows_digest(columns)
    new = [row for row in rows if row.origin == "new"]
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "dataset",
        "task": task,
        "digest": dataset_digest(task, parent, policies, fingerprint),
        "rows_digest": fingerprint,
        "policies": sorted(set(policies)),
        "parent": parent,
        "lineage": list(lineage),
        "window": list(window) if window is not None else None,  # label versions after the first, up to the second
        "considered": considered,
        "rows": row_counts(rows),
        "kinds": kind_counts(rows),
        "dropped": dict(sorted(dropped.items())),
        "caps": {**caps, "largest_user_share": round(largest_user_share(rows), 6)},
        "firewall": firewall,
        "replay": replay,
        "anchors": anchors,
        "redaction": dict(sorted(redaction.items())),  # spans by kind
        "self_generated": own_counts(rows),
        "labels": dict(sorted(Counter(row.label_source for row in new).items())),
        "targets": target_counts(rows),
        "tokens": None,  # counted by training, which knows the tokenizer
        "card": "card.md",
        "notes": list(notes),
    }
