"""What a champion has learned: its chain of checkpoints and the datasets they were trained on."""

from __future__ import annotations

import sqlalchemy as sa

from flywheel.errors import CheckpointError
from flywheel.store.registry import schema
from flywheel.store.registry.database import Transaction


def lineage_datasets(tx: Transaction, release: str) -> list[str]:
    """Digests of the datasets behind a release, oldest first; empty for the base model.

    Raises CheckpointError when the chain names a checkpoint that the registry does not know.
    """
    checkpoint = tx.scalar(sa.select(schema.releases.c.checkpoint).where(schema.releases.c.digest == release))
    datasets: list[str] = []
    while checkpoint is not None:
        table = schema.checkpoints
        row = tx.row(sa.select(table.c.parent, table.c.dataset).where(table.c.digest == checkpoint))
        if row is None:
            raise CheckpointError(f"checkpoint {checkpoint} of release {release} is not in the registry")
        if row["dataset"] is not None:
            datasets.append(row["dataset"])
        checkpoint = row["parent"]
    return list(reversed(list(dict.fromkeys(datasets))))
