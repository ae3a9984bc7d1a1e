"""Mutations of every format's fixture: outside the mapped fields they change nothing, inside only the record they hit.

``fixtures/fields.json`` says of each format which fields of its fixture mean nothing to us (``unmapped``) and which of
its objects pass on keys that we do not know (``carries``: metadata, parameters, tools, content); ``verbatim`` are texts
that stay as they are, JSON or not. A test holds it to what the formats do, so the file is written from what it finds.
A path names keys as ``.key``, items of lists as ``[]``, rows of key/value lists as ``[key]``, and JSON
inside a text as ``~``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.intake.formats import FORMATS, named
from flywheel.intake.normalise import Normaliser
from flywheel.intake.records import BadRecord, Context, Dropped, FeedbackRecord, InteractionRecord, SkippedRecord
from flywheel.store.digests import canonical_json

NAMES = sorted(FORMATS)
FIELDS: dict[str, dict[str, list[str]]] = json.loads((Path(__file__).parent / "fixtures" / "fields.json").read_text())
CONTEXT = Context("support_router", frozenset({"support_router", "writer"}))
EXTRA = "x_extra"

GONE = object()
CHANGES = (GONE, None, 7, "zz", [], {"a": 1}, True)
"""What is put in the place of a field to see whether it matters."""

FEW = settings(max_examples=max(1, settings.default.max_examples // 4))
"""There are as many tests of a kind as formats."""

Path_ = tuple[Any, ...]

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def held_json(value: Any) -> Any:
    """The object or list that a text spells, if it is written as `json.dumps` writes it; else None."""
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return None
    try:
        return json.loads(value)
    except ValueError:
        return None


def children(value: Any) -> list[tuple[Path_, str, Any]]:
    """The next places inside a value: the way there, its name in a path, what lies there."""
    if held := held_json(value):
        return [(("~",), "~", held)]
    if isinstance(value, dict):
        by_id = value and all(isinstance(row, dict) and row.get("id") == key for key, row in value.items())
        return [((key,), ".*" if by_id else f".{key}", inner) for key, inner in value.items()]
    if not isinstance(value, list):
        return []
    if value and all(isinstance(row, dict) and set(row) == {"key", "value"} for row in value):
        return [((place, "value"), f"[{row['key']}]", row["value"]) for place, row in enumerate(value)]
    return [((place,), "[]", inner) for place, inner in enumerate(value)]


def walk(value: Any, way: Path_ = (), name: str = "") -> Iterator[tuple[Path_, str, Any]]:
    """Every place in a value, itself first."""
    yield way, name, value
    for step, own, inner in children(value):
        yield from walk(inner, (*way, *step), name + own)


def fields(record: Any) -> list[tuple[Path_, str]]:
    """The places that hold nothing further: numbers, texts, what is empty."""
    return [(way, name) for way, name, value in walk(record) if way and not children(value)]


def objects(record: Any) -> list[tuple[Path_, str, dict[str, Any]]]:
    """The objects, but for the rows of key/value lists and the typed values in them."""
    return [(way, name, value) for way, name, value in walk(record) if isinstance(value, dict)]


def put(value: Any, way: Path_, new: Any) -> Any:
    """A copy of ``value`` with ``new`` at a place, or without that place."""
    if not way:
        return new
    key, *rest = way
    if key == "~":
        return json.dumps(put(json.loads(value), tuple(rest), new))
    copy = dict(value) if isinstance(value, dict) else list(value)
    if new is GONE and not rest:
        del copy[key]
    else:
        copy[key] = put(copy[key], tuple(rest), new)
    return copy


@pytest.fixture(params=NAMES)
def each(request: Any, log_fixture: Any) -> Any:
    return log_fixture(request.param)


def said(each: Any, record: Any) -> Any:
    """Which formats take a record for one of theirs, and what it becomes, whatever the order of its parts."""
    found = each.read(record)
    return each.takers(record), sorted(found, key=canonical_json) if isinstance(found, list) else found


def test_every_field_of_the_fixtures_matters_or_is_named_as_one_that_does_not(each: Any) -> None:
    matters: dict[str, bool] = {}
    for record in each.records:
        before = said(each, record)
        for way, name in fields(record):
            if not matters.get(name):
                matters[name] = any(said(each, put(record, way, new)) != before for new in CHANGES)
    assert sorted(name for name, found in matters.items() if not found) == FIELDS[each.name]["unmapped"]


def test_what_passes_unknown_keys_on_or_stays_to_the_letter_is_named(each: Any) -> None:
    carries, verbatim = set(), set()
    for record in each.records:
        before = said(each, record)
        for way, name, value in objects(record):
            if said(each, put(record, way, {**value, EXTRA: 7})) != before:
                carries.add(name)
            if said(each, put(record, way, dict(reversed(value.items())))) != before:
                verbatim.add(name)
    assert sorted(carries) == FIELDS[each.name]["carries"]
    assert sorted(verbatim) == FIELDS[each.name]["verbatim"]
    assert all(name.endswith("~") for name in verbatim)


def test_a_key_that_is_passed_on_costs_no_record_and_is_not_lost(each: Any) -> None:
    for record in each.records:
        before = each.read(record)
        if isinstance(before, dict):
            continue
        for way, name, value in objects(record):
            if name not in FIELDS[each.name]["carries"]:
                continue
            extra = {"description": "x"} if name.endswith(".tool_definitions") else 7
            after = each.read(put(record, way, {**value, EXTRA: extra}))
            assert isinstance(after, list) and calls(after) == calls(before)
            assert after == before or EXTRA in json.dumps(after)


def calls(found: list[Any]) -> list[Any]:
    return [one["call_id"] for one in found if one["record"] == "InteractionRecord"]


class Mutation:
    """Draws changes of a record that nothing we read can notice."""

    def __init__(self, fmt: str, data: st.DataObject) -> None:
        self.known, self.data = FIELDS[fmt], data

    def made(self, record: Any) -> Any:
        """The record with some of its unmapped fields changed or gone, keys added and reordered."""
        for _ in range(self.data.draw(st.integers(1, 4))):
            places = [way for way, name in fields(record) if name in self.known["unmapped"]]
            if places and self.data.draw(st.booleans()):
                way = self.data.draw(st.sampled_from(places))
                record = put(
                    record, way, self.data.draw(st.just(GONE) | anything | st.builds(deep, st.integers(1, 20)))
                )
            else:
                record = self._more(record)
        return self._shuffled(record, "")

    def _more(self, record: Any) -> Any:
        places = [(way, value) for way, name, value in objects(record) if name not in self.known["carries"]]
        way, value = self.data.draw(st.sampled_from(places))
        return put(record, way, {self.data.draw(st.text(max_size=6).map(lambda key: f"x_{key}")): 1, **value})

    def _shuffled(self, value: Any, name: str) -> Any:
        if name in self.known["verbatim"]:
            return value
        for step, own, inner in children(value):
            if own == "~" and name + own in self.known["verbatim"]:
                continue
            value = put(value, step, self._shuffled(inner, name + own))
        if not isinstance(value, dict):
            return value
        return {key: value[key] for key in self.data.draw(st.permutations(list(value)))}


def deep(levels: int) -> Any:
    """A value nested so deeply."""
    return {"a": [deep(levels - 1)]} if levels > 1 else "x"


@FEW
@given(data=st.data())
def test_what_is_changed_outside_the_mapped_fields_changes_nothing(each: Any, data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(each.records))
    changed = Mutation(each.name, data).made(record)
    assert said(each, changed) == said(each, record)


def clean_rows(deployment: Any, call: Any, fmt: str) -> list[dict[str, Any]]:
    """The rows of a call that stands alone, without what depends on its place."""
    share = deployment.config.task(deployment.task).labels.audit_share
    normaliser = Normaliser(deployment.home, deployment.task, share, datetime.now(UTC))
    record, *_ = named(fmt).records(call.written(fmt), CONTEXT)
    assert isinstance(record, InteractionRecord)
    return [content(row._asdict()) for row in normaliser.interaction(record, "", 0)]


def content(row: dict[str, Any]) -> dict[str, Any]:
    place = ("source", "source_offset", "turn_index", "parent_interaction_id")
    return {key: value for key, value in row.items() if key not in place}


def anything_like(records: list[Any]) -> st.SearchStrategy[Any]:
    """Objects made of the keys and values that a format's records are made of, in any shape."""
    found = [value for record in records for _, _, value in walk(record)]
    keys = sorted({key for value in found if isinstance(value, dict) for key in value})
    held = sorted({json.dumps(value) for value in found if not isinstance(value, dict | list)})
    leaf = leaves | st.sampled_from(held).map(json.loads)
    key = st.sampled_from(keys)
    inside = st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(key, inner, max_size=4)
            | st.dictionaries(key, inner, max_size=3).map(json.dumps)
        ),
        max_leaves=8,
    )
    return st.dictionaries(key, inside, max_size=8)


@settings(max_examples=2)
@given(data=st.data())
def test_what_is_damaged_or_nothing_we_know_touches_no_neighbour_and_adds_nothing_twice(
    each: Any, deployment: Any, take_in: Any, stored: Any, call_class: Any, data: st.DataObject
) -> None:
    taken = len(stored("interactions"))
    around = [call_class(id=f"n{taken}-{k}", talk=f"talk-{taken}-{k}", user=f"u{k}") for k in range(16)]
    odd = [each.damaged(data) if k % 4 else data.draw(anything_like(each.records)) for k in range(16)]
    lines = [line for call, other in zip(around, odd, strict=True) for line in (call.written(each.name), other)]
    report = take_in(lines, fmt=each.name)
    assert report.read == 32 and report.kept >= 16
    rows = {row["interaction_id"]: content(row) for row in stored("interactions")}
    for call in around:
        for row in clean_rows(deployment, call, each.name):
            assert rows[row["interaction_id"]] == row
    again = take_in(lines, fmt=each.name)
    assert (again.read, again.kept) == (32, 0)


@FEW
@given(data=st.data())
def test_no_object_whatever_makes_a_format_raise(each: Any, data: st.DataObject) -> None:
    record = data.draw(anything_like(each.records))
    each.takers(record)
    try:
        found = named(each.name).records(record, CONTEXT)
    except (BadRecord, SkippedRecord) as reason:
        assert str(reason)
    else:
        assert found and all(isinstance(one, InteractionRecord | FeedbackRecord | Dropped) for one in found)
