"""Which segments may hold a key, without asking every one of them for every chunk of a long import.

In memory, for one run: a 64-bit hash of each key and the number of its segment, 12 bytes a key. A hit is a hint; the
segments it names are asked for the rows themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import SETTINGS, visible

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]


class SegmentKeys:
    """The keys of one task's visible segments of a table; what was written since the last question is read then.

    Args:
        keys: SQL expressions over the table's columns, each a key of a row or null.
    """

    def __init__(self, home: Home, registry: Registry, table: str, task: str, keys: Sequence[str]) -> None:
        self._home, self._registry, self._table, self._task = home, registry, table, task
        self._sql = " UNION ".join(f"SELECT hash({key}) AS h FROM rows WHERE {key} IS NOT NULL" for key in keys)
        self._paths: list[str] = []
        self._runs: list[tuple[Hashes, Numbers]] = []  # hashes in order with the numbers of their segments

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(":memory:", config=SETTINGS)

    def segments_with(self, keys: Collection[str]) -> list[str]:
        """Paths of the visible segments that may hold one of the keys, in order."""
        if not keys:
            return []
        shown = self._read_new()
        asked = self._hashes_of(keys)
        numbers: set[int] = set()
        for hashes, segments in self._runs:
            first, behind = np.searchsorted(hashes, asked, "left"), np.searchsorted(hashes, asked, "right")
            for start, end in zip(first[behind > first].tolist(), behind[behind > first].tolist(), strict=True):
                numbers.update(segments[start:end].tolist())
        return sorted(path for number in numbers if (path := self._paths[number]) in shown)

    def _read_new(self) -> set[str]:
        with self._registry.read() as tx:
            shown = {row["path"] for row in visible(tx, self._table, self._task)}
        for path in sorted(shown.difference(self._paths)):
            with self._connection.cursor() as cursor:
                cursor.from_parquet(str(self._home.data / path), hive_partitioning=False).create_view("rows")
                hashes = np.sort(cursor.sql(self._sql).fetchnumpy()["h"].astype(np.uint64))
                cursor.execute("DROP VIEW rows")
            self._add(hashes, np.full(len(hashes), len(self._paths), np.int32))
            self._paths.append(path)
        return shown

    def _add(self, hashes: Hashes, numbers: Numbers) -> None:
        """Add a run; runs of like size are merged, so that there are few of them."""
        while self._runs and len(self._runs[-1][0]) <= 2 * len(hashes):
            before, earlier = self._runs.pop()
            hashes, numbers = np.concatenate([before, hashes]), np.concatenate([earlier, numbers])
            order = np.argsort(hashes, kind="stable")
            hashes, numbers = hashes[order], numbers[order]
        self._runs.append((hashes, numbers))

    def _hashes_of(self, keys: Collection[str]) -> Hashes:
        with self._connection.cursor() as cursor:
            asked = cursor.from_arrow(pa.table({"key": pa.array(keys, pa.string())}))
            return np.unique(asked.project("hash(key) AS h").fetchnumpy()["h"].astype(np.uint64))
