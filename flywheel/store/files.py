"""Files that survive a power cut, and locks that a dead process cannot keep."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flywheel.errors import HomeBusy


def fsync_folder(folder: Path) -> None:
    """Make a rename or a new name inside ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write ``data`` so that ``path`` is either what it was or all of ``data``, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with sorted keys, atomically."""
    write_atomic(path, (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def publish_folder(temporary: Path, final: Path) -> None:
    """Move a finished folder to its content-addressed name; if that exists already, keep it and drop the new one."""
    for path in sorted(temporary.rglob("*")):
        if path.is_file():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary.rename(final)
    except OSError:
        if not final.is_dir():
            raise
        remove_tree(temporary)
    fsync_folder(final.parent)


def remove_tree(folder: Path) -> None:
    """Remove a folder and what is in it; a folder that is not there is fine."""
    if not folder.exists():
        return
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    folder.rmdir()


@contextmanager
def locked(path: Path, *, wait: bool = True, holder: str = "another process") -> Iterator[None]:
    """Hold an exclusive flock on ``path``; the kernel drops it when the process dies.

    Raises HomeBusy at once when ``wait`` is false and the lock is taken.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise HomeBusy(f"{path} is locked by {holder}; stop it first") from None
        yield
