"""Parquet segments: written whole, made visible by one registry transaction, queried by DuckDB.

A segment file is named by the digest of its rows, so that a re-run after a crash writes the same name. It becomes
visible when ``register`` puts its row into the registry, in the same transaction that moves the source's position.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa

from flywheel.store.files import write_atomic, write_json
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction, schema
from flywheel.store.tables import SCHEMA_VERSION, TABLES

# The session's zone is part of every time that comes back: it must not be the machine's.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "TimeZone": "UTC",
}


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


def write_segment(home: Home, table: str, task: str, day: str, rows: Sequence[dict[str, Any]] | pa.Table) -> Segment:
    """Write rows of one task and day as Parquet (zstd) with its manifest last.

    Args:
        table: a key of ``TABLES``; missing columns become null.
        day: ``YYYY-MM-DD`` of the rows' ``ts``.
        rows: at least one, as dictionaries by column name or as a table of that schema.
    """
    arrow = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema=TABLES[table])
    content = table_digest(arrow)
    path = f"{table}/task={task}/day={day}/{content[:32]}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(arrow, sink, compression="zstd")
    write_atomic(home.data / path, sink.getvalue().to_pybytes())
    seqs = pc.min_max(arrow["seq"]).as_py() if "seq" in arrow.column_names else {"min": None, "max": None}
    segment = Segment(path, table, task, day, arrow.num_rows, content, seqs["min"], seqs["max"])
    manifest = {"schema_version": SCHEMA_VERSION, "table": table, "rows": segment.rows, "digest": content}
    write_json((home.data / path).with_suffix(".manifest.json"), manifest)
    return segment


def table_digest(table: pa.Table) -> str:
    """SHA-256 of a table's content: names, types, and the values row by row of each column, however it is chunked."""
    found = hashlib.sha256(f"{table.schema.to_string(show_field_metadata=False)}|{table.num_rows}".encode())
    for column in table.columns:
        _update(found, pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type))
    return found.hexdigest()


def _update(found: Any, values: pa.Array) -> None:
    """Take a column in: where it is null, then its values with nulls as nothing; lists as lengths and items."""
    kind = values.type
    if values.null_count:
        found.update(np.packbits(values.is_null().to_numpy(zero_copy_only=False)).tobytes())
    if pa.types.is_list(kind):
        found.update(pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False).tobytes())
        _update(found, values.flatten())
    elif pa.types.is_string(kind):
        filled = values.fill_null("")
        _, starts, text = filled.buffers()
        ends = np.frombuffer(starts, np.int32, len(filled) + 1, filled.offset * 4)
        found.update(np.diff(ends).tobytes())
        found.update(memoryview(text or b"")[ends[0] : ends[-1]])
    elif pa.types.is_boolean(kind):
        found.update(np.packbits(values.fill_null(False).to_numpy(zero_copy_only=False)).tobytes())
    elif pa.types.is_timestamp(kind):
        found.update(values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).tobytes())
    else:
        found.update(values.fill_null(0).to_numpy(zero_copy_only=False).tobytes())


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


def query(
    home: Home,
    registry: Registry,
    table: str,
    task: str,
    sql: str,
    params: Sequence[Any] = (),
    *,
    among: Sequence[str] | None = None,
) -> pa.Table:
    """Run DuckDB SQL over the visible segments of one table and task, which the SQL calls ``rows``.

    ``SELECT ... FROM rows ... ORDER BY ...``; an empty table has the right columns. Always order what you digest.

    Args:
        among: paths of the segments to look at, known to be visible; None means all.
    """
    if among is None:
        with registry.read() as tx:
            among = [row["path"] for row in visible(tx, table, task)]
    with duckdb.connect(":memory:", config=SETTINGS) as connection:
        if among:
            paths = [str(home.data / path) for path in among]
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


__all__ = ["Segment", "query", "read_rows", "register", "table_digest", "unregister", "visible", "write_segment"]
