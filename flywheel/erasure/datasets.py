"""Published datasets: each that holds rows of the person gets a successor, and a tombstone in its own place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from flywheel.datasets.publish import TOMBSTONE, load_examples, load_manifest, publish_locked, read_manifest
from flywheel.datasets.successor import Successor, bury, clear, without
from flywheel.erasure.work import Work
from flywheel.errors import DatasetError
from flywheel.store.files import remove_tree
from flywheel.store.home import Home
from flywheel.store.registry import schema


def erase_examples(work: Work) -> None:
    """Replace every dataset with rows of the person, or made of their feedback; the caller holds the dataset locks."""
    if work.apply:
        for left in work.home.datasets.glob(".building-*"):
            remove_tree(left)
    for manifest in list(_manifests(work)):
        digest, task = manifest["digest"], manifest["task"]

        def goes(row: dict[str, Any], task: str = task) -> bool:
            return work.scope.takes_call(task, row) or work.scope.has_touched(task, row["interaction_id"])

        found = without(manifest, load_examples(work.home, digest), goes, newest=lambda name: _newest(work.home, name))
        if found is None:
            continue
        work.datasets[digest] = found.removed
        work.taught |= {digest} if found.train_removed else set()
        work.counts["datasets"] += 1
        work.counts["dataset_rows"] += found.removed
        if work.apply:
            _replace(work, digest, found)


def _manifests(work: Work) -> Iterator[dict[str, Any]]:
    """The manifests of datasets that are no tombstones; parents before their children, as these name them."""
    found = []
    for folder in sorted(work.home.datasets.glob("[!.]*")):
        manifest = read_manifest(work.home, folder.name)
        if manifest.get("kind") != TOMBSTONE:
            found.append(manifest)
        elif work.apply:
            clear(work.home, folder.name)  # a kill may have come between the tombstone and the rows beside it
    yield from sorted(found, key=lambda manifest: (len(manifest["lineage"]), manifest["digest"]))


def _replace(work: Work, digest: str, found: Successor) -> None:
    table = schema.datasets
    mine = table.c.digest == digest
    with work.registry.read() as tx:
        loop_id = tx.scalar(sa.select(table.c.loop_id).where(mine))
    built = publish_locked(work.home, work.registry, found.columns, found.manifest, loop_id=loop_id)
    with work.registry.write() as tx:
        rows = {"rows": found.removed, "train_rows": found.train_removed}
        work.bury(tx, "dataset", digest, task=found.manifest["task"], successor=built.digest, **rows)
    stone = bury(work.home, digest, successor=built.digest, rows_removed=found.removed)
    with work.registry.write() as tx:
        tx.execute(sa.update(table).where(mine).values(manifest=stone))


def _newest(home: Home, digest: str) -> str:
    try:
        return str(load_manifest(home, digest)["digest"])
    except DatasetError:
        return digest  # an ancestor that is not here any more
