"""Datasets on disk: ``home.datasets/<digest>/{examples.parquet,card.md,manifest.json}``, whole or not there at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from flywheel.datasets.card import card
from flywheel.datasets.manifest import dataset_rows_digest
from flywheel.datasets.rows import from_columns
from flywheel.errors import DatasetError
from flywheel.store.erased import Erased
from flywheel.store.files import locked, publish_folder, read_json, remove_tree, write_atomic, write_json
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema
from flywheel.store.tables import EXAMPLES, SCHEMA_VERSION

TOMBSTONE = "tombstone"
"""Kind of the manifest that stays of a dataset of which rows were erased: {digest, successor, rows_removed}."""


@dataclass(frozen=True)
class DatasetBuild:
    """A published dataset. ``train`` and ``val`` count rows by side, ``new`` and ``replay`` by origin."""

    digest: str
    path: Path
    manifest: dict[str, Any]

    @property
    def train(self) -> int:
        return int(self.manifest["rows"]["train"])

    @property
    def val(self) -> int:
        return int(self.manifest["rows"]["val"])

    @property
    def new(self) -> int:
        return int(self.manifest["rows"]["new"])

    @property
    def replay(self) -> int:
        return int(self.manifest["rows"]["replay"])


def publish(
    home: Home,
    registry: Registry,
    columns: Sequence[dict[str, Any]],
    manifest: dict[str, Any],
    *,
    loop_id: str | None,
) -> DatasetBuild:
    """Write a dataset and put it into the registry. Publishing equal content again changes nothing.

    A build that died leaves a hidden folder that the task's next build removes; only the last rename makes it a
    dataset. A dataset on disk that the registry does not know (death between the two) is registered by a re-run.

    Raises DatasetError when a row is of a user who was erased while the dataset was built.
    """
    task = manifest["task"]
    with locked(dataset_lock(home, task)):
        with registry.read() as tx:
            erased = Erased(home, tx, task)
        late = sum(not welcome(erased, row) for row in columns) if erased.anybody else 0
        if late:
            raise DatasetError(f"{task}: {late} rows are of users erased while the dataset was built; build it again")
        return publish_locked(home, registry, columns, manifest, loop_id=loop_id)


def publish_locked(
    home: Home,
    registry: Registry,
    columns: Sequence[dict[str, Any]],
    manifest: dict[str, Any],
    *,
    loop_id: str | None,
) -> DatasetBuild:
    """``publish`` for a caller that holds the task's dataset lock and vouches for the rows."""
    name, task = manifest["digest"], manifest["task"]
    final = home.datasets / name
    building = home.datasets / f".building-{task}"
    remove_tree(building)
    if not final.is_dir():
        building.mkdir(parents=True)
        sink = pa.BufferOutputStream()
        rows = sorted(columns, key=lambda row: row["example_id"])
        pq.write_table(pa.Table.from_pylist(rows, schema=EXAMPLES), sink, compression="zstd")
        write_atomic(building / "examples.parquet", sink.getvalue().to_pybytes())
        write_atomic(building / "card.md", card(manifest).encode())
        write_json(building / "manifest.json", manifest)
        publish_folder(building, final)
    stored = load_manifest(home, name)
    table = schema.datasets
    with registry.write() as tx:
        if tx.scalar(sa.select(table.c.digest).where(table.c.digest == name)) is None:
            values = {"digest": name, "task": task, "loop_id": loop_id, "parent": stored["parent"]}
            tx.execute(sa.insert(table).values(**values, manifest=stored, **tx.stamp()))
    return DatasetBuild(name, final, stored)


def dataset_lock(home: Home, task: str) -> Path:
    """The lock file of whoever writes datasets of a task."""
    return home.locks / f"dataset-{task}.lock"


def welcome(erased: Erased, row: Mapping[str, Any]) -> bool:
    """Whether a row may be in a dataset as far as erasures go: by its user, its interaction and its conversation."""
    by_user = erased.erasure_of(row["user_key"] or "") is not None
    return not by_user and erased.gone(row["interaction_id"], row["conversation_id"]) is None


def load_manifest(home: Home, digest: str) -> dict[str, Any]:
    """The manifest of a published dataset; of its successor, when rows of it were erased.

    Raises DatasetError when there is no such dataset, or it was written by a newer version.
    """
    manifest = read_manifest(home, digest)
    while manifest.get("kind") == TOMBSTONE:
        manifest = read_manifest(home, manifest["successor"])
    return manifest


def read_manifest(home: Home, digest: str) -> dict[str, Any]:
    """What lies under exactly this digest: a dataset's manifest, or a tombstone with ``successor``.

    Raises DatasetError as ``load_manifest`` does.
    """
    path = home.datasets / digest / "manifest.json"
    try:
        manifest: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        raise DatasetError(f"no dataset {digest}: {path} is missing; build it again, or restore it") from None
    if manifest["schema_version"] > SCHEMA_VERSION:
        raise DatasetError(
            f"{path}: schema version {manifest['schema_version']}, but this Flywheel reads up to {SCHEMA_VERSION}; "
            "use a newer one"
        )
    return manifest


def load_examples(home: Home, digest: str) -> list[dict[str, Any]]:
    """Rows of a published dataset by example id, with the columns of EXAMPLES (``messages`` and ``tools`` are JSON).

    Of a dataset of which rows were erased, these are the rows of its successor. Raises DatasetError when the dataset
    is missing or its rows are not what its manifest says.
    """
    manifest = load_manifest(home, digest)
    path = home.datasets / manifest["digest"] / "examples.parquet"
    rows: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist()
    if dataset_rows_digest(rows) != manifest["rows_digest"]:
        raise DatasetError(
            f"{path}: the rows are not those of the manifest beside it; restore the folder or rebuild it"
        )
    return rows


def lineage_prompts(home: Home, digests: Sequence[str]) -> dict[str, str]:
    """``prompt_text`` of every row, of either side, of some datasets, by `rows.prompt_mac` of what it was before
    redaction: an exact copy is known by the key, a near one by the text."""
    rows = (from_columns(row) for digest in digests for row in load_examples(home, digest))
    return {row.prompt_mac: row.text for row in rows}


def lineage_interactions(home: Home, digests: Sequence[str]) -> frozenset[str]:
    """Ids of every interaction in some datasets."""
    rows = (row for digest in digests for row in load_examples(home, digest))
    return frozenset(row["interaction_id"] for row in rows if row["interaction_id"])
