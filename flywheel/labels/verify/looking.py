"""Which answers an author has not looked at yet."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from flywheel.labels.verify.words import Author
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema
from flywheel.store.segments import query, visible


def newest_first(registry: Registry, task: str) -> list[str]:
    """Paths of a task's segments of answers, the newest day first."""
    with registry.read() as tx:
        rows = visible(tx, "interactions", task)
    return [row["path"] for row in sorted(rows, key=lambda row: row["day"], reverse=True)]


def is_there(registry: Registry, path: str) -> bool:
    """Whether a segment is still visible. One that was merged or rewritten since has its answers elsewhere."""
    with registry.read() as tx:
        return tx.scalar(sa.select(schema.segments.c.path).where(schema.segments.c.path == path)) is not None


def looked_at(home: Home, registry: Registry, task: str, author: Author) -> pa.Array:
    """The subjects of all words of this version of an author."""
    sql = (
        "SELECT substr(source_id, length($3) + 1) AS subject FROM rows"
        " WHERE source = $1 AND author_key = $2 AND starts_with(source_id, $3)"
    )
    found = query(home, registry, "feedback", task, sql, [author.source, author.name, author.prefix])
    return found["subject"].combine_chunks() if found.num_rows else pa.array([], pa.string())


def without(ids: pa.Array, seen: pa.Array) -> list[str]:
    """The ids that were not looked at, in their order."""
    left: list[str] = ids.filter(pc.invert(pc.is_in(ids, value_set=seen))).to_pylist()
    return left
