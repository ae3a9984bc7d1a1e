"""Which segments may hold a key: never fewer than do, and only those that are shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.store.keys import SegmentKeys
from flywheel.store.segments import register, unregister, write_segment


@pytest.fixture
def keys(deployment: Any) -> SegmentKeys:
    own = ("interaction_id", "NULLIF(conversation_id, '')")
    return SegmentKeys(deployment.home, deployment.registry, "interactions", "t", own)


def write(deployment: Any, *ids: str, conversation: str = "") -> str:
    rows = [
        {"interaction_id": own, "conversation_id": conversation, "ts": datetime(2025, 3, 1, tzinfo=UTC)} for own in ids
    ]
    segment = write_segment(deployment.home, "interactions", "t", "2025-03-01", rows)
    with deployment.registry.write() as tx:
        register(tx, [segment])
    return segment.path


def test_a_key_is_found_in_every_segment_that_holds_it_under_any_of_its_columns(deployment: Any, keys: Any) -> None:
    first, second = write(deployment, "a", "b"), write(deployment, "b", "c", conversation="a")
    assert keys.segments_with(["b"]) == sorted([first, second])
    assert keys.segments_with(["a"]) == sorted([first, second])
    assert keys.segments_with(["c", "unknown"]) == [second]
    assert keys.segments_with(["unknown"]) == keys.segments_with([]) == keys.segments_with([""]) == []


def test_what_is_written_and_what_is_hidden_later_counts_at_the_next_question(deployment: Any, keys: Any) -> None:
    first = write(deployment, "a")
    assert keys.segments_with(["a", "b"]) == [first]
    second = write(deployment, "b")
    assert keys.segments_with(["a", "b"]) == sorted([first, second])
    with deployment.registry.write() as tx:
        unregister(tx, [first])
    assert keys.segments_with(["a", "b"]) == [second]


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=12), min_size=1, max_size=12), st.data())
def test_merging_runs_forgets_no_key(keys: Any, segments: list[list[int]], data: Any) -> None:
    import numpy as np

    fresh = SegmentKeys(keys._home, keys._registry, "interactions", "t", ("interaction_id",))
    for number, held in enumerate(segments):
        fresh._add(np.sort(np.array(held, np.uint64)), np.full(len(held), number, np.int32))
    assert len(fresh._runs) <= 8
    for wanted in data.draw(st.sets(st.integers(0, 70), max_size=5)):
        found = {
            int(number)
            for hashes, numbers in fresh._runs
            for own, number in zip(hashes, numbers, strict=True)
            if own == wanted
        }
        assert found == {number for number, held in enumerate(segments) if wanted in held}
    for hashes, _ in fresh._runs:
        assert (np.diff(hashes.astype(np.int64)) >= 0).all()
