"""A dataset without some of its rows: what an erasure puts in the place of a published one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.datasets.caps import largest_user_share
from flywheel.datasets.manifest import (
    dataset_digest,
    dataset_rows_digest,
    kind_counts,
    own_counts,
    row_counts,
    target_counts,
)
from flywheel.datasets.publish import TOMBSTONE
from flywheel.datasets.rows import from_columns
from flywheel.store.files import remove_tree, write_json
from flywheel.store.home import Home
from flywheel.store.tables import SCHEMA_VERSION


@dataclass(frozen=True)
class Successor:
    """What stays of a dataset, ready to be published.

    Args:
        removed: rows that are not in it any more; ``train_removed`` of them were there to be learned.
    """

    manifest: dict[str, Any]
    columns: list[dict[str, Any]]
    removed: int
    train_removed: int


def without(
    manifest: dict[str, Any],
    columns: Sequence[dict[str, Any]],
    goes: Callable[[dict[str, Any]], bool],
    *,
    newest: Callable[[str], str],
) -> Successor | None:
    """The dataset of ``manifest`` and ``columns`` without the rows that ``goes`` picks; None when it picks none.

    Figures that rows tell are counted anew. Where the labels of the rest came from is not told by rows: it is known
    only when all had one source. What was considered and dropped while the dataset was built stays, and the rows
    that go now are among the dropped, so that rows considered are still new rows + rows dropped.

    Args:
        newest: of a dataset's digest, the digest of what stands in its place now.
    """
    kept = [row for row in columns if not goes(row)]
    gone = [row for row in columns if goes(row)]
    if not gone:
        return None
    rows = [from_columns(row) for row in kept]
    parent = newest(manifest["parent"]) if manifest["parent"] else None
    fingerprint = dataset_rows_digest(kept)
    counts = row_counts(rows)
    origins = Counter(row["origin"] for row in gone)
    sources = list(manifest["labels"])
    new = sum(row["origin"] == "new" for row in kept)
    changed = {
        "digest": dataset_digest(manifest["task"], parent, manifest["policies"], fingerprint),
        "rows_digest": fingerprint,
        "parent": parent,
        "lineage": [newest(digest) for digest in manifest["lineage"]],
        "rows": counts,
        "kinds": kind_counts(rows),
        "dropped": _more(manifest["dropped"], origins["new"]),
        "caps": {**manifest["caps"], "largest_user_share": round(largest_user_share(rows), 6)},
        "replay": _redrawn(manifest["replay"], counts["replay"], origins["replay"]),
        "anchors": _redrawn(manifest["anchors"], counts["anchor"], origins["anchor"]),
        "self_generated": own_counts(rows),
        "labels": {sources[0] if len(sources) == 1 else "unknown": new} if new else {},
        "targets": target_counts(rows),
        "notes": [*manifest["notes"], f"{len(gone)} rows erased"],
    }
    return Successor(manifest | changed, kept, len(gone), sum(row["side"] == "train" for row in gone))


def bury(home: Home, digest: str, *, successor: str, rows_removed: int) -> dict[str, Any]:
    """Leave of a dataset's folder nothing but a tombstone, which is returned. Doing it again changes nothing."""
    stone = {
        "schema_version": SCHEMA_VERSION,
        "kind": TOMBSTONE,
        "digest": digest,
        "successor": successor,
        "rows_removed": rows_removed,
    }
    write_json(home.datasets / digest / "manifest.json", stone)
    clear(home, digest)
    return stone


def clear(home: Home, digest: str) -> None:
    """Remove all from a buried dataset's folder but its tombstone."""
    for path in (home.datasets / digest).iterdir():
        if path.is_dir():
            remove_tree(path)
        elif path.name != "manifest.json":
            path.unlink(missing_ok=True)


def _redrawn(drawn: dict[str, Any], left: int, erased: int) -> dict[str, Any]:
    return {**drawn, "drawn": left, "dropped": _more(drawn["dropped"], erased)}


def _more(dropped: dict[str, int], erased: int) -> dict[str, int]:
    return dict(sorted({**dropped, "erased": dropped.get("erased", 0) + erased}.items())) if erased else dropped
