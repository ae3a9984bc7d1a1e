"""Content digests: equal content gives equal digests on every machine, whatever the row order, path or time.

SHA-256 in lower-case hex. Tensors are hashed from the safetensors bytes directly, so no torch is needed.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from flywheel.errors import CheckpointError

SHORT = 12
"""Hex digits of a digest that go into names such as ``support_router@1f2e3d4c5b6a``."""

_ATOMS = frozenset({str, int, bool, type(None)})


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys, sets as sorted lists, no spaces, ASCII; NaN and infinities are refused."""
    if _same_in_orjson(value):
        try:
            found = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError:  # whole numbers of more than 64 bits, halves of surrogate pairs
            return _ENCODER.encode(value).encode()
        if found.isascii():
            return found.replace(b"\x7f", b"\\u007f")
        return found.decode().encode("ascii", "flywheel_json").replace(b"\x7f", b"\\u007f")
    return _ENCODER.encode(value).encode()


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def rows_digest(rows: Iterable[tuple[str, Any]]) -> str:
    """Digest of ``(id, content)`` rows, independent of their order."""
    return digest(sorted((row_id, digest(content)) for row_id, content in rows))


def short(full: str) -> str:
    """The first ``SHORT`` digits, for names that people read."""
    return full[:SHORT]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def tensor_digests(path: Path) -> dict[str, str]:
    """SHA-256 per tensor of a safetensors file over ``dtype|shape|bytes``, keyed by tensor name.

    Raises CheckpointError when the file is not a whole safetensors file.
    """
    with path.open("rb") as handle:
        head = handle.read(8)
        size = path.stat().st_size
        if len(head) < 8 or (length := struct.unpack("<Q", head)[0]) > size - 8:
            raise CheckpointError(f"{path}: not a safetensors file ({size} bytes)")
        try:
            header = json.loads(handle.read(length))
        except ValueError as error:
            raise CheckpointError(f"{path}: unreadable safetensors header") from error
        start = 8 + length
        digests: dict[str, str] = {}
        for name, entry in sorted(header.items()):
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if start + end > size:
                raise CheckpointError(f"{path}: truncated in tensor {name!r}")
            handle.seek(start + begin)
            digests[name] = tensor_digest(entry["dtype"], entry["shape"], handle.read(end - begin))
        return digests


def tensor_digest(dtype: str, shape: Iterable[int], raw: bytes) -> str:
    """SHA-256 of one tensor; ``dtype`` in safetensors' spelling (``F32``, ``BF16``), ``raw`` little-endian C order."""
    head = f"{dtype}|{','.join(str(n) for n in shape)}|".encode()
    return hashlib.sha256(head + raw).hexdigest()


def weights_digest(digests: dict[str, str]) -> str:
    """One digest for a set of tensors, from their digests by name."""
    return digest(digests)


def _same_in_orjson(value: Any) -> bool:
    """Whether orjson writes a value as `json` does: strings, whole numbers, and fractions that need no exponent."""
    kind = type(value)
    if kind is dict:
        for key, one in value.items():
            if type(key) is not str or (type(one) not in _ATOMS and not _same_in_orjson(one)):
                return False
        return True
    if kind is list or kind is tuple:
        return all(map(_same_in_orjson, [one for one in value if type(one) not in _ATOMS]))
    if kind is float:
        return bool(value == 0 or 1e-4 <= abs(value) < 1e16)
    return kind in _ATOMS


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(f"canonical JSON cannot hold {type(value).__name__}")


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Characters beyond ASCII as JSON escapes; in JSON text they occur in strings only."""
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error("flywheel_json", _escape)

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=_plain)
