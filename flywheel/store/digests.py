"""Content digests: equal content gives equal digests on every machine, whatever the row order, path or time.

SHA-256 in lower-case hex. Tensors are hashed from the safetensors bytes directly, so no torch is needed.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flywheel.errors import CheckpointError

SHORT = 12
"""Hex digits of a digest that go into names such as ``support_router@1f2e3d4c5b6a``."""


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys, sets as sorted lists, no spaces, UTF-8; NaN and infinities are refused."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=_plain
    ).encode()


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


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(f"canonical JSON cannot hold {type(value).__name__}")
