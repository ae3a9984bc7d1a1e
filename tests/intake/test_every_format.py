"""What every log format owes: its golden output, and no surprise about records that are damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = sorted(path.stem for path in (Path(__file__).parent / "fixtures").glob("*.jsonl"))


@pytest.fixture(params=NAMES)
def each(request: Any, log_fixture: Any) -> Any:
    return log_fixture(request.param)


def test_the_fixture_becomes_its_golden_output(each: Any) -> None:
    for record, golden in zip(each.records, each.golden, strict=True):
        assert each.read(record) == golden


@given(data=st.data())
def test_a_damaged_record_is_refused_or_read_but_never_raises(each: Any, data: st.DataObject) -> None:
    each.check_damaged(each.damaged(data))


@settings(max_examples=5)
@given(data=st.data())
def test_an_import_of_damaged_records_reconciles(each: Any, take_in: Any, data: st.DataObject) -> None:
    records = [each.damaged(data) for _ in range(10)]
    assert take_in(records, fmt=each.name).read == 10
    assert take_in(records, fmt=each.name).kept == 0
