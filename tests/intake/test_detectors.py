"""Detection: every record of every fixture is taken by its own format and by no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.intake.formats import FORMATS

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.jsonl"))
USER = {"role": "user", "content": "hi"}
PLAIN: dict[str, list[dict[str, Any]]] = {
    "gateway": [
        {"v": 1, "kind": "interaction", "id": "c", "task": "t", "request": {"messages": [USER]}, "choices": []},
        {"v": 1, "kind": "feedback", "id": "f", "task": "t", "target": {"kind": "interaction", "id": "c"}},
    ],
    "nvidia_flywheel": [
        {"timestamp": 1, "workload_id": "w", "client_id": "c", "request": {"messages": [USER]}, "response": {}}
    ],
    "openai_chat": [
        {"request": {"messages": [USER]}, "response": {"choices": []}, "call_type": "chat", "trace_id": "t"},
        {"messages": [USER], "choices": [], "type": "GENERATION", "timestamp": 1, "title": "t", "name": "n"},
        {"messages": [USER], "response": "A", "user_id": "u", "session_id": "s", "value": 1},
    ],
}


def takers(record: dict[str, Any]) -> list[str]:
    return [fmt.name for fmt in FORMATS.values() if fmt.matches(record)]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_exactly_the_own_format_takes_a_record(path: Path) -> None:
    for line in path.read_text().splitlines():
        assert takers(json.loads(line)) == [path.stem]


@pytest.mark.parametrize("name", PLAIN)
def test_formats_without_a_fixture_are_told_apart_too(name: str) -> None:
    for record in PLAIN[name]:
        assert takers(record) == [name]


@pytest.mark.parametrize(
    "record",
    [{}, {"id": "t1", "type": "SPAN"}, {"data": [], "object": "list"}, {"observation": 1}, {"name": "n", "value": 1}],
)
def test_what_is_no_log_is_nobodys(record: dict[str, Any]) -> None:
    assert takers(record) == []


KEYS = sorted({key for path in FIXTURES for line in path.read_text().splitlines() for key in json.loads(line)})
odd = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just([]) | st.just({}) | st.just([{}])


@given(record=st.dictionaries(st.sampled_from(KEYS), odd, max_size=12))
def test_no_detector_minds_what_lies_under_its_keys(record: dict[str, Any]) -> None:
    takers(record)
