"""Segments: whole on disk before they are visible, and visible by one transaction."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from flywheel.store import compaction
from flywheel.store.compaction import compact, sweep
from flywheel.store.registry import schema
from flywheel.store.segments import query, read_rows, register, unregister, visible, write_segment
from flywheel.store.tables import TABLES

DAY = "2025-03-01"


def label(seq: int) -> dict[str, Any]:
    moment = datetime(2025, 3, 1, tzinfo=UTC) + timedelta(seconds=seq)
    return {"seq": seq, "target_id": f"c{seq}", "reasons": ["thumb up"], "matured_at": moment}


def write(deployment: Any, *seqs: int, show: bool = True) -> Any:
    segment = write_segment(deployment.home, "labels", "t", DAY, [label(seq) for seq in seqs])
    if show:
        with deployment.registry.write() as tx:
            register(tx, [segment])
    return segment


def seqs(deployment: Any) -> list[int]:
    return [row["seq"] for row in read_rows(deployment.home, deployment.registry, "labels", "t", "seq")]


def test_a_written_segment_is_invisible_until_it_is_registered(deployment: Any) -> None:
    segment = write(deployment, 1, 2, show=False)
    assert (deployment.home.data / segment.path).exists() and seqs(deployment) == []
    with deployment.registry.write() as tx:
        register(tx, [segment])
    assert seqs(deployment) == [1, 2]


def test_a_failed_transaction_makes_no_segment_visible(deployment: Any) -> None:
    segment = write(deployment, 1, show=False)
    with pytest.raises(RuntimeError), deployment.registry.write() as tx:
        register(tx, [segment])
        raise RuntimeError
    assert seqs(deployment) == []


def test_registering_twice_shows_rows_once(deployment: Any) -> None:
    segment = write(deployment, 1)
    with deployment.registry.write() as tx:
        register(tx, [segment, segment])
    assert seqs(deployment) == [1]


def test_equal_rows_get_an_equal_name_and_other_rows_another(deployment: Any) -> None:
    assert write(deployment, 1, 2).path == write(deployment, 1, 2).path != write(deployment, 1, 3).path


def test_the_manifest_is_written_last_and_describes_the_file(deployment: Any) -> None:
    path = deployment.home.data / write(deployment, 4, 5).path
    manifest = json.loads(path.with_suffix(".manifest.json").read_text())
    assert (manifest["rows"], manifest["table"], manifest["schema_version"]) == (2, "labels", 1)
    assert path.stat().st_mtime_ns <= path.with_suffix(".manifest.json").stat().st_mtime_ns
    assert pq.read_schema(path).equals(TABLES["labels"])


def test_a_segment_knows_the_range_of_its_numbers(deployment: Any) -> None:
    segment = write(deployment, 7, 3, 5)
    assert (segment.first_seq, segment.last_seq, segment.rows) == (3, 7, 3)


def test_hiding_and_showing_in_one_transaction_replaces_segments(deployment: Any) -> None:
    old = write(deployment, 1)
    new = write(deployment, 2, show=False)
    with deployment.registry.write() as tx:
        unregister(tx, [old.path])
        register(tx, [new])
    assert seqs(deployment) == [2]


def test_tasks_and_tables_do_not_see_each_other(deployment: Any) -> None:
    write(deployment, 1)
    with deployment.registry.read() as tx:
        assert visible(tx, "labels", "other") == visible(tx, "feedback", "t") == []


def test_an_empty_table_has_its_columns(deployment: Any) -> None:
    found = query(deployment.home, deployment.registry, "interactions", "t", "SELECT * FROM rows")
    assert found.column_names == TABLES["interactions"].names and found.num_rows == 0


def test_times_come_back_in_utc_wherever_the_machine_stands(deployment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    write(deployment, 1)
    (row,) = read_rows(deployment.home, deployment.registry, "labels", "t", "seq")
    assert row["matured_at"].isoformat() == "2025-03-01T00:00:01+00:00"


def test_merging_keeps_every_row_and_hides_the_small_files(deployment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MERGE_AT", 4)
    order = list(range(1, 9))
    random.Random(0).shuffle(order)
    for seq in order:
        write(deployment, seq)
    assert compact(deployment.home, deployment.registry, "labels", "t") == 8
    assert seqs(deployment) == list(range(1, 9))
    with deployment.registry.read() as tx:
        (merged,) = tx.rows(sa.select(schema.segments))
    assert (merged["rows"], merged["first_seq"], merged["last_seq"]) == (8, 1, 8)
    assert compact(deployment.home, deployment.registry, "labels", "t") == 0


def test_large_segments_are_not_merged_again(deployment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MERGE_AT", 2)
    monkeypatch.setattr(compaction, "SMALL_ROWS", 3)
    for first in (1, 4, 7):
        write(deployment, first, first + 1, first + 2)
    assert compact(deployment.home, deployment.registry, "labels", "t") == 0


def test_a_merge_holds_no_more_rows_than_fit_into_memory(deployment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [deployment.home.data / write(deployment, seq).path for seq in range(1, 7)]
    size = max(pq.read_metadata(path).row_group(0).total_byte_size for path in paths)
    monkeypatch.setattr(compaction, "MERGE_AT", 2)
    monkeypatch.setattr(compaction, "MERGE_BYTES", 3 * size)
    assert compact(deployment.home, deployment.registry, "labels", "t") == 6
    with deployment.registry.read() as tx:
        assert sorted(row["rows"] for row in tx.rows(sa.select(schema.segments))) == [3, 3]
    monkeypatch.setattr(compaction, "MERGE_BYTES", size)
    assert compact(deployment.home, deployment.registry, "labels", "t") == 0
    assert seqs(deployment) == list(range(1, 7))


def test_a_reader_that_listed_files_before_a_merge_can_still_read_them(
    deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MERGE_AT", 2)
    listed = [deployment.home.data / write(deployment, seq).path for seq in (1, 2)]
    compact(deployment.home, deployment.registry, "labels", "t")
    assert sweep(deployment.home, deployment.registry, "labels", "t") == 0
    assert all(path.exists() for path in listed)
    assert sweep(deployment.home, deployment.registry, "labels", "t", grace_seconds=-1) == 2
    assert not any(path.exists() for path in listed) and seqs(deployment) == [1, 2]
