"""Digests cover content: not the order of rows or keys, not paths, not file bytes."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flywheel.errors import CheckpointError
from flywheel.store.digests import (
    canonical_json,
    digest,
    file_digest,
    rows_digest,
    tensor_digest,
    tensor_digests,
    weights_digest,
)

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)


@given(values)
def test_canonical_json_is_json_for_the_same_value_in_one_spelling(value: Any) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text
    assert text.isascii()


anything = st.recursive(
    scalars | st.floats(1e-6, 1e-2) | st.integers(2**62, 2**70) | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(anything)
@example("\x7f\x1b\ud800 é \U0001f600")
@example([1e16, 1e-5, 1e-4, -0.0, 2**64, 1.0])
def test_canonical_json_is_what_the_standard_library_writes(value: Any) -> None:
    expected = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    assert canonical_json(value) == expected.encode()


def test_canonical_json_has_one_known_spelling() -> None:
    assert canonical_json({"b": (1, 2.5), "a": {"é", "a"}}) == b'{"a":["a","\\u00e9"],"b":[1,2.5]}'


@given(st.dictionaries(st.text(), values, max_size=5), st.randoms())
def test_the_order_of_keys_does_not_count(value: dict[str, Any], chance: Any) -> None:
    keys = list(value)
    chance.shuffle(keys)
    assert digest({key: value[key] for key in keys}) == digest(value)


@given(st.frozensets(st.text(), max_size=6))
def test_a_set_is_its_sorted_list(value: frozenset[str]) -> None:
    assert digest(value) == digest(set(value)) == digest(sorted(value))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [-float("inf")]])
def test_numbers_that_are_not_json_are_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        canonical_json(value)


def test_a_value_that_json_cannot_hold_is_refused_by_type_name() -> None:
    with pytest.raises(TypeError, match="bytes"):
        canonical_json({"a": b"secret"})


@given(st.lists(st.tuples(st.text(), values), max_size=6), st.randoms())
def test_the_order_of_rows_does_not_count(rows: list[tuple[str, Any]], chance: Any) -> None:
    shuffled = list(rows)
    chance.shuffle(shuffled)
    assert rows_digest(shuffled) == rows_digest(iter(rows))


@given(st.dictionaries(st.text(), st.integers(), min_size=1, max_size=5), st.data())
def test_every_row_and_its_id_count(rows: dict[str, int], data: st.DataObject) -> None:
    changed = data.draw(st.sampled_from(sorted(rows)))
    whole = rows_digest(rows.items())
    assert rows_digest((rows | {changed: rows[changed] + 1}).items()) != whole
    assert rows_digest((key, value) for key, value in rows.items() if key != changed) != whole
    assert rows_digest([*rows.items(), (changed, rows[changed])]) != whole


def write_safetensors(path: Path, tensors: dict[str, tuple[str, list[int], bytes]], metadata: dict[str, str]) -> Path:
    """The file format, written by hand as the oracle: length, JSON header, data."""
    header: dict[str, Any] = {"__metadata__": metadata}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)
    return path


TENSORS = {"b": ("F32", [2], struct.pack("<2f", 1, 2)), "a": ("BF16", [1, 1], b"\x80\x3f")}


def test_tensor_digests_are_of_dtype_shape_and_bytes(tmp_path: Path) -> None:
    found = tensor_digests(write_safetensors(tmp_path / "a.safetensors", TENSORS, {}))
    assert list(found) == ["a", "b"]
    assert found["b"] == hashlib.sha256(b"F32|2|" + struct.pack("<2f", 1, 2)).hexdigest()
    assert found["a"] == tensor_digest("BF16", (1, 1), b"\x80\x3f")


def test_the_weights_digest_ignores_order_metadata_and_name_of_the_file(tmp_path: Path) -> None:
    one = write_safetensors(tmp_path / "a.safetensors", TENSORS, {"made": "today"})
    two = write_safetensors(tmp_path / "b.safetensors", dict(reversed(TENSORS.items())), {})
    assert file_digest(one) != file_digest(two)
    assert weights_digest(tensor_digests(one)) == weights_digest(tensor_digests(two))


def test_one_changed_bit_changes_the_weights_digest(tmp_path: Path) -> None:
    one = write_safetensors(tmp_path / "a.safetensors", TENSORS, {})
    before = weights_digest(tensor_digests(one))
    raw = bytearray(one.read_bytes())
    raw[-1] ^= 1
    one.write_bytes(raw)
    assert weights_digest(tensor_digests(one)) != before


@pytest.mark.parametrize("keep", [0, 4, 9, -1])
def test_a_damaged_tensor_file_is_refused(tmp_path: Path, keep: int) -> None:
    path = write_safetensors(tmp_path / "a.safetensors", TENSORS, {})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"not a safetensors file|unreadable|truncated"):
        tensor_digests(path)


def test_a_tensor_file_with_a_broken_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", 4) + b"{{{{" + b"0" * 8)
    with pytest.raises(CheckpointError, match="header"):
        tensor_digests(path)
