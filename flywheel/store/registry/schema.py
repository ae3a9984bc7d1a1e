"""Tables of the registry. Small rows only; bulk data lies in Parquet, details in manifests.

Times are ISO 8601 strings in UTC with microseconds, so that they sort as text on every database. ``stamp()`` gives the
three columns that every row carries.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()

DIGEST = sa.String(64)


def _stamps() -> list[sa.Column[Any]]:
    return [
        sa.Column("environment", sa.String(16), nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
    ]


def utc_now() -> str:
    """The current time as stored in the registry."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


# One row per input of a task. `position` is the source's own resume point; it moves in the same transaction as the
# segments that hold what was read, so that a crash neither loses nor doubles a record.
sources = sa.Table(
    "sources",
    metadata,
    sa.Column("task", sa.String(64), primary_key=True),
    sa.Column("source", sa.String(512), primary_key=True),
    sa.Column("position", sa.JSON, nullable=False),
    sa.Column("watermark", sa.String(32), nullable=False, default=""),
    *_stamps(),
)

# Reconciliation: read = kept + duplicate + quarantined + skipped, per source and intake run; late ones are kept too.
intake_counts = sa.Table(
    "intake_counts",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run", sa.String(64), nullable=False),
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("source", sa.String(512), nullable=False),
    sa.Column("read", sa.Integer, nullable=False),
    sa.Column("kept", sa.Integer, nullable=False),
    sa.Column("late", sa.Integer, nullable=False),
    sa.Column("duplicate", sa.Integer, nullable=False),
    sa.Column("quarantined", sa.Integer, nullable=False),
    sa.Column("skipped", sa.Integer, nullable=False),
    sa.Column("reasons", sa.JSON, nullable=False),
    *_stamps(),
)

# A Parquet file is visible to readers when its row is here. `first_seq..last_seq` number the label versions in it.
segments = sa.Table(
    "segments",
    metadata,
    sa.Column("path", sa.String(512), primary_key=True),  # relative to home.data
    sa.Column("table", sa.String(32), nullable=False),
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("day", sa.String(10), nullable=False),
    sa.Column("rows", sa.Integer, nullable=False),
    sa.Column("digest", DIGEST, nullable=False),
    sa.Column("first_seq", sa.Integer),
    sa.Column("last_seq", sa.Integer),
    *_stamps(),
    sa.Index("segments_by_table", "table", "task", "day"),
)

datasets = sa.Table(
    "datasets",
    metadata,
    sa.Column("digest", DIGEST, primary_key=True),
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("loop_id", sa.String(96)),
    sa.Column("parent", DIGEST),
    sa.Column("manifest", sa.JSON, nullable=False),
    *_stamps(),
)

suites = sa.Table(
    "suites",
    metadata,
    sa.Column("digest", DIGEST, primary_key=True),
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),  # gate | golden | user
    sa.Column("items", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),  # live | retired
    sa.Column("uses", sa.Integer, nullable=False, default=0),
    *_stamps(),
)

# The life of one suite item. live -> graduated is one-way: a graduated item may train and never returns to a suite.
suite_items = sa.Table(
    "suite_items",
    metadata,
    sa.Column("task", sa.String(64), primary_key=True),
    sa.Column("interaction_id", sa.String(128), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),  # gate | golden
    sa.Column("state", sa.String(16), nullable=False),  # live | graduated
    sa.Column("uses", sa.Integer, nullable=False, default=0),
    sa.Column("loop_id", sa.String(96)),  # the latest loop that drew it
    *_stamps(),
)

# Which suites a loop is judged by: drawn once, so that traffic arriving between two attempts changes nothing.
selections = sa.Table(
    "selections",
    metadata,
    sa.Column("loop_id", sa.String(96), primary_key=True),
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("gate", DIGEST, nullable=False),
    sa.Column("golden", DIGEST, nullable=False),
    sa.Column("counts", sa.JSON, nullable=False),
    *_stamps(),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("digest", DIGEST, primary_key=True),
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("input_digest", DIGEST, nullable=False),
    sa.Column("parent", DIGEST),
    sa.Column("dataset", DIGEST),
    sa.Column("manifest", sa.JSON, nullable=False),
    *_stamps(),
    sa.Index("checkpoints_by_input", "input_digest"),
)

releases = sa.Table(
    "releases",
    metadata,
    sa.Column("digest", DIGEST, primary_key=True),
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("checkpoint", DIGEST),
    sa.Column("manifest", sa.JSON, nullable=False),
    *_stamps(),
)

evaluations = sa.Table(
    "evaluations",
    metadata,
    sa.Column("digest", DIGEST, primary_key=True),
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("loop_id", sa.String(96)),
    sa.Column("input_digest", DIGEST, nullable=False),
    sa.Column("champion", DIGEST, nullable=False),
    sa.Column("candidate", DIGEST, nullable=False),
    sa.Column("summary", sa.JSON, nullable=False),
    *_stamps(),
    sa.Index("evaluations_by_input", "input_digest"),
)

# One decision per evaluation; `used_at` is set by the promotion it allowed, once and for ever.
decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("digest", DIGEST, primary_key=True),
    sa.Column("evaluation", DIGEST, nullable=False, unique=True),
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("tenant", sa.String(64), nullable=False, default=""),
    sa.Column("candidate", DIGEST, nullable=False),
    sa.Column("champion", DIGEST, nullable=False),
    sa.Column("pointer_version", sa.Integer, nullable=False),
    sa.Column("verdict", sa.String(16), nullable=False),
    sa.Column("record", sa.JSON, nullable=False),
    sa.Column("used_at", sa.String(32)),
    *_stamps(),
)

champions = sa.Table(
    "champions",
    metadata,
    sa.Column("environment", sa.String(16), primary_key=True),
    sa.Column("task", sa.String(64), primary_key=True),
    sa.Column("tenant", sa.String(64), primary_key=True, default=""),
    sa.Column("release", DIGEST, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("actor", sa.String(128), nullable=False),
    sa.Column("at", sa.String(32), nullable=False),
)

# Every move of the pointer, never rewritten. `kind`: initial | promote | rollback.
promotions = sa.Table(
    "promotions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("tenant", sa.String(64), nullable=False, default=""),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("release", DIGEST, nullable=False),
    sa.Column("previous", DIGEST),
    sa.Column("decision", DIGEST),
    sa.Column("loop_id", sa.String(96)),
    sa.Column("swap_ms", sa.Float),
    *_stamps(),
    sa.UniqueConstraint("environment", "task", "tenant", "version"),
)

# A live gateway. Desired state is `champions`; `observed` is what the replica says it routes, by task.
replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("replica_id", sa.String(64), primary_key=True),
    sa.Column("url", sa.String(256), nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("boot_id", sa.String(64), nullable=False),
    sa.Column("started", sa.String(32), nullable=False),  # the process's start ticks
    sa.Column("state", sa.String(16), nullable=False),  # starting | ready | stopped
    sa.Column("observed", sa.JSON, nullable=False),
    *_stamps(),
)

# The truth about turns of the wheel. state: claimed | running | finished | failed. A failed attempt raises `attempt`
# and returns to `claimed`; after the last one the loop is `failed` and its window is claimed by the next loop.
loops = sa.Table(
    "loops",
    metadata,
    sa.Column("loop_id", sa.String(96), primary_key=True),  # "<task>/<number>"
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("tenant", sa.String(64), nullable=False, default=""),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("from_seq", sa.Integer, nullable=False),
    sa.Column("to_seq", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("run_id", sa.String(64)),
    sa.Column("pid", sa.Integer),
    sa.Column("boot_id", sa.String(64)),
    sa.Column("started", sa.String(32)),
    sa.Column("dataset", DIGEST),
    sa.Column("candidate", DIGEST),  # a release digest
    sa.Column("evaluation", DIGEST),
    sa.Column("decision", DIGEST),
    sa.Column("verdict", sa.String(16)),
    sa.Column("reasons", sa.JSON, nullable=False),
    sa.Column("finished_at", sa.String(32)),
    *_stamps(),
    sa.UniqueConstraint("task", "tenant", "number"),
)

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("key_id", sa.String(32), primary_key=True),
    sa.Column("name", sa.String(128), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),  # SHA-256 of the key
    sa.Column("scopes", sa.JSON, nullable=False),
    sa.Column("revoked_at", sa.String(32)),
    *_stamps(),
)

# One row per erased person, named by the keyed hash of their id and by nothing else. state: running | done. From the
# moment the row exists, intake drops the person; `tainted` is what had learned from them when the erasure ended.
erasures = sa.Table(
    "erasures",
    metadata,
    sa.Column("erasure_id", sa.String(40), primary_key=True),
    sa.Column("user_key", sa.String(64), nullable=False, unique=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("counts", sa.JSON, nullable=False),
    sa.Column("tainted", sa.JSON, nullable=False),
    *_stamps(),
)

# Keyed hashes of ids that went with a person, so that an unfinished erasure finds what belongs to it and a later import
# of the same records is recognised. kind: gone (interactions, conversations, feedback) | touched (interactions of
# others that the person gave feedback on; known until the erasure is done).
erased_names = sa.Table(
    "erased_names",
    metadata,
    sa.Column("task", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("erasure_id", sa.String(40), nullable=False),
    *_stamps(),
)

# What an erasure replaced. kind: dataset | suite, with a successor that has all the other rows; or probes, where
# `digest` is the release whose whole recording went and which has no successor.
tombstones = sa.Table(
    "tombstones",
    metadata,
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("digest", DIGEST, primary_key=True),
    sa.Column("task", sa.String(64), nullable=False),
    sa.Column("successor", DIGEST),
    sa.Column("rows_removed", sa.Integer, nullable=False),
    sa.Column("train_rows_removed", sa.Integer, nullable=False),  # of them those that a model learns from
    sa.Column("erasure_id", sa.String(40), nullable=False),
    *_stamps(),
)
