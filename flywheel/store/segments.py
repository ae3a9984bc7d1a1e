"""Parquet segments: written whole, made visible by one registry transaction, queried by DuckDB.

A segment file is named by the digest of its rows, so that a re-run after a crash writes the same name. It becomes
visible when ``register`` puts its row into the registry, in the same transaction that moves the source's position.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from flywheel.store.digests import rows_digest
from flywheel.store.files import write_atomic, write_json
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.tables import SCHEMA_VERSION, TABLES


@dataclass(frozen=True)
class Segment:
    """A written segment file, not yet visible."""

    path: str  # relative to home.data
    table: str
    task: str
    day: str
    rows: int
    digest: str
    first_seq: int | None = None
    last_seq: int | None = None


def write_segment(home: Home, table: str, task: str, day: str, rows: Sequence[dict[str, Any]]) -> Segment:
    """Write rows of one task and day as Parquet (zstd) with its manifest last.

    Args:
        table: a key of ``TABLES``; missing columns become null.
        day: ``YYYY-MM-DD`` of the rows' ``ts``.
        rows: at least one dictionary by column name.
    """
    arrow = pa.Table.from_pylist(list(rows), schema=TABLES[table])
    content = rows_digest((str(index), _plain(row)) for index, row in enumerate(rows))
    path = f"{table}/task={task}/day={day}/{content[:32]}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(arrow, sink, compression="zstd")
    write_atomic(home.data / path, sink.getvalue().to_pybytes())
    seqs = [row["seq"] for row in rows if row.get("seq") is not None]
    segment = Segment(path, table, task, day, len(rows), content, min(seqs, default=None), max(seqs, default=None))
    manifest = {"schema_version": SCHEMA_VERSION, "table": table, "rows": segment.rows, "digest": content}
    write_json((home.data / path).with_suffix(".manifest.json"), manifest)
    return segment


def register(tx: Transaction, segments: Sequence[Segment]) -> None:
    """Make segments visible; one that is visible already stays as it is."""
    for segment in segments:
        known = tx.scalar(sa.select(schema.segments.c.path).where(schema.segments.c.path == segment.path))
        if known is None:
            tx.execute(sa.insert(schema.segments).values(**vars(segment), **tx.stamp()))


def unregister(tx: Transaction, paths: Sequence[str]) -> None:
    """Hide segments whose rows now live elsewhere (orphans that joined)."""
    for path in paths:
        tx.execute(sa.delete(schema.segments).where(schema.segments.c.path == path))


def visible(tx: Transaction, table: str, task: str) -> list[dict[str, Any]]:
    """Registry rows of the visible segments of a table, in a stable order."""
    segments = schema.segments
    return tx.rows(
        sa.select(segments).where(segments.c.table == table, segments.c.task == task).order_by(segments.c.path)
    )


def query(home: Home, registry: Registry, table: str, task: str, sql: str, params: Sequence[Any] = ()) -> pa.Table:
    """Run DuckDB SQL over the visible segments of one table and task, which the SQL calls ``rows``.

    ``SELECT ... FROM rows ... ORDER BY ...``; an empty table has the right columns. Always order what you digest.
    """
    with registry.read() as tx:
        paths = [str(home.data / row["path"]) for row in visible(tx, table, task)]
    # The session's zone is part of every time that comes back: it must not be the machine's.
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "autoinstall_known_extensions": False,
        "TimeZone": "UTC",
    }
    with duckdb.connect(":memory:", config=settings) as connection:
        if paths:
            connection.from_parquet(paths, union_by_name=True, hive_partitioning=False).create_view("rows")
        else:
            connection.register("rows", TABLES[table].empty_table())
        return connection.sql(sql, params=list(params)).to_arrow_table()


def read_rows(home: Home, registry: Registry, table: str, task: str, order_by: str) -> list[dict[str, Any]]:
    """All visible rows of a table as dictionaries, ordered by the SQL expression ``order_by``."""
    rows: list[dict[str, Any]] = query(
        home, registry, table, task, f"SELECT * FROM rows ORDER BY {order_by}"
    ).to_pylist()
    return rows


_JSON = (str, int, float, bool, type(None))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value if isinstance(value, _JSON) else json.loads(json.dumps(value, default=str))
        for key, value in row.items()
    }


__all__ = ["Segment", "query", "read_rows", "register", "unregister", "visible", "write_segment"]
