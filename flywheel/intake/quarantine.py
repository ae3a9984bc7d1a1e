"""Records that cannot be used: kept with their place and reason, bounded, for a person to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO

import sqlalchemy as sa

from flywheel.errors import IntakeError
from flywheel.intake.containers import JSON_LINES, container_of
from flywheel.intake.records import Json
from flywheel.intake.sources import GATEWAY
from flywheel.store import segments
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

MAX_RAW = 4096
"""Bytes of a bad record that are kept."""

_BLOCK = 2**20

Place = tuple[str, int]
"""The file and the byte offset at which a record begins."""


def quarantine_row(source: str, offset: int, raw: bytes, reason: str, now: datetime) -> Json:
    """A row of the quarantine table; undecodable bytes and NULs are replaced so that it can always be stored."""
    return {"source": source, "source_offset": offset, "raw": storable(raw), "reason": reason, "ts": now}


def storable(raw: bytes) -> str:
    """The text by which a record is kept in quarantine."""
    return raw[:MAX_RAW].decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")


def quarantined(
    home: Home, registry: Registry, task: str, *, source: str | None = None, reason: str | None = None
) -> list[Json]:
    """How many records are in quarantine per source and reason, and since when; the most frequent first.

    Args:
        source: only this source, or this file of one.
        reason: only this reason.
    """
    sql = "SELECT source AS file, reason, count(*) AS records, min(ts) AS first, max(ts) AS last FROM rows GROUP BY ALL"
    source_of = sources_of(registry, task)
    found: dict[tuple[str, str], Json] = {}
    for row in segments.query(home, registry, "quarantine", task, sql).to_pylist():
        name = source_of(row["file"])
        if source not in (None, name, row["file"]) or reason not in (None, row["reason"]):
            continue
        key = (name, row["reason"])
        told = found.setdefault(key, {**row, "source": name, "records": 0})
        told["records"] += row["records"]
        told["first"], told["last"] = min(told["first"], row["first"]), max(told["last"], row["last"])
    shown = ("source", "reason", "records", "first", "last")
    ordered = sorted(found.values(), key=lambda told: (-told["records"], told["source"], told["reason"]))
    return [{name: told[name] for name in shown} for told in ordered]


def places(
    home: Home, registry: Registry, task: str, *, source: str | None = None, reason: str | None = None
) -> list[Place]:
    """Where the records in quarantine lie, each place once, in order.

    Args:
        source: only those of this source, or of this file.
        reason: only those that are there for this reason.
    """
    sql = "SELECT DISTINCT source, source_offset FROM rows WHERE $1 = '' OR reason = $1 ORDER BY ALL"
    rows = segments.query(home, registry, "quarantine", task, sql, [reason or ""]).to_pylist()
    source_of = sources_of(registry, task)
    wanted = {file for file in {row["source"] for row in rows} if source in (None, file, source_of(file))}
    return [(row["source"], row["source_offset"]) for row in rows if row["source"] in wanted]


def entries(
    home: Home, registry: Registry, task: str, places: Sequence[Place], *, reason: str | None = None
) -> list[Json]:
    """The rows of the quarantine table at these places, in order: a file that was read twice has two of a record."""
    sql = (
        "SELECT * FROM rows WHERE (source, source_offset) IN (SELECT (unnest($1), unnest($2)))"
        " AND ($3 = '' OR reason = $3) ORDER BY source, source_offset, ts, reason"
    )
    params = [[file for file, _ in places], [offset for _, offset in places], reason or ""]
    rows: list[Json] = segments.query(home, registry, "quarantine", task, sql, params).to_pylist() if places else []
    return rows


def sources_of(registry: Registry, task: str) -> Callable[[str], str]:
    """The function from the name of a file to that of the source it was read from."""
    table = schema.sources
    with registry.read() as tx:
        rows = tx.rows(sa.select(table.c.source, table.c.position).where(table.c.task == task))
    known = {file: row["source"] for row in rows for file in row["position"].get("files", {})}
    return lambda file: known.get(file) or (GATEWAY if file.startswith(f"{GATEWAY}/") else file)


def file_path(home: Home, file: str) -> Path:
    """Where a file lies that quarantine names."""
    return home.log / file.removeprefix(f"{GATEWAY}/") if file.startswith(f"{GATEWAY}/") else Path(file)


def line_numbers(home: Home, places: Sequence[Place]) -> dict[Place, int]:
    """The line, counted from 1, on which each record stands; not of those whose file is gone or has no lines."""
    found: dict[Place, int] = {}
    by_file: dict[str, list[int]] = {}
    for file, offset in sorted(places):
        by_file.setdefault(file, []).append(offset)
    for file, offsets in by_file.items():
        try:
            at = file_path(home, file)
            if container_of(at) == JSON_LINES:
                with at.open("rb") as handle:
                    found |= {(file, offset): line for offset, line in _lines_at(handle, offsets)}
        except (OSError, IntakeError):
            continue
    return found


def _lines_at(handle: IO[bytes], offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    line, place, last = 1, 0, b"\n"
    for offset in offsets:
        while place < offset and (block := handle.read(min(_BLOCK, offset - place))):
            line += block.count(b"\n")
            place += len(block)
            last = block[-1:]
        if place == offset and last == b"\n":
            yield offset, line
