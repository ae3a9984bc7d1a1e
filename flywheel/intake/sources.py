"""What a task reads: the gateway's log and the configured logs, each a set of files with a resume point per file.

A resume point is a byte offset together with digests of the file's first bytes and of those just before the offset. A
file that was truncated or replaced does not match them and is read from its start; what it repeats is a duplicate.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.errors import IntakeError
from flywheel.store.home import Home
from flywheel.store.wal import is_live

GATEWAY = "gateway"

SETTLED_SECONDS = 60.0
"""A foreign log that has not changed for this long is not about to finish its last line."""

_WINDOW = 1024


@dataclass(frozen=True)
class Source:
    """One input of a task.

    Args:
        name: ``gateway``, or the path as configured.
        fmt: a format's name, or ``auto``.
        files: label and path, in the order in which they are read.
        tail: what an unterminated last line means. ``log``: torn once no writer holds the file, else not yet;
            ``growing``: kept when it is whole JSON, torn once the file has settled, else not yet;
            ``finished``: kept when it is whole JSON, else torn.
    """

    name: str
    fmt: str
    files: list[tuple[str, Path]]
    tail: str


def gateway_source(home: Home) -> Source:
    """The gateway's write-ahead log; boot names sort by time."""
    files = [(f"{GATEWAY}/{path.name}", path) for path in sorted(home.log.glob("*.jsonl"))]
    return Source(GATEWAY, "gateway", files, "log")


def path_source(path: Path, *, fmt: str = "auto", tail: str = "growing") -> Source:
    """A file, or a folder with every ``*.jsonl`` and ``*.ndjson`` below it. Nothing there yet means no files."""
    if path.is_dir():
        found = sorted(item for item in path.rglob("*") if item.suffix in (".jsonl", ".ndjson") and item.is_file())
    else:
        found = [path] if path.is_file() else []
    return Source(str(path), fmt, [(str(item), item) for item in found], tail)


def task_sources(config: Config, home: Home, task: str) -> list[Source]:
    """All sources of a task."""
    return [gateway_source(home), *(path_source(Path(log)) for log in config.task(task).logs)]


@dataclass(frozen=True)
class OpenFile:
    """A file about to be read on.

    Args:
        offset: where to start.
        restarted: whether an earlier resume point did not fit the file any more.
        closed: whether nobody will append to it; found before reading, so that what is read then is all there is.
    """

    offset: int
    restarted: bool
    closed: bool
    size: int
    mtime_ns: int
    inode: int


def look(path: Path, position: dict[str, Any] | None, tail: str) -> OpenFile | None:
    """How to read a file on, or None when there is nothing new in it.

    Raises IntakeError when the file cannot be read; a file that has just gone has nothing new.
    """
    try:
        stat = path.stat()
        facts = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        known = position or {"offset": 0}
        moved = facts != (known.get("size"), known.get("mtime_ns"), known.get("inode"))
        if not moved and known["offset"] >= stat.st_size:
            return None
        closed = _closed(path, tail, stat.st_mtime)
        fits = position is None or (stat.st_size >= known["offset"] and _fits(path, known))
        return OpenFile(known["offset"] if fits else 0, not fits, closed, *facts)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IntakeError(f"{path}: cannot be read: {error.strerror}") from error


def resume_point(path: Path, offset: int, facts: OpenFile) -> dict[str, Any]:
    """What to store so that the next run goes on at ``offset``."""
    head_length = min(offset, _WINDOW)
    return {
        "offset": offset,
        "head_length": head_length,
        "head": _window(path, 0, head_length),
        "tail": _window(path, max(0, offset - _WINDOW), min(offset, _WINDOW)),
        "size": facts.size,
        "mtime_ns": facts.mtime_ns,
        "inode": facts.inode,
    }


def moved_point(path: Path, point: dict[str, Any], before: os.stat_result) -> dict[str, Any]:
    """A resume point in a file whose content was replaced byte for byte: the same offset in what lies there now.

    Args:
        point: the resume point in the file as it was.
        before: that file's status. If the point had seen the file as it was, it has seen it as it is.
    """
    stat = path.stat()
    current = (point["size"], point["mtime_ns"]) == (before.st_size, before.st_mtime_ns)
    return point | {
        "head": _window(path, 0, point["head_length"]),
        "tail": _window(path, max(0, point["offset"] - _WINDOW), min(point["offset"], _WINDOW)),
        "size": stat.st_size if current else point["size"],
        "mtime_ns": stat.st_mtime_ns if current else point["mtime_ns"],
        "inode": stat.st_ino,
    }


def _closed(path: Path, tail: str, modified: float) -> bool:
    if tail == "log":
        return not is_live(path)
    return tail == "finished" or time.time() - modified > SETTLED_SECONDS


def _fits(path: Path, position: dict[str, Any]) -> bool:
    offset, head_length = position["offset"], position["head_length"]
    before = _window(path, max(0, offset - _WINDOW), min(offset, _WINDOW))
    return bool(_window(path, 0, head_length) == position["head"] and before == position["tail"])


def _window(path: Path, start: int, length: int) -> str:
    with path.open("rb") as handle:
        handle.seek(start, os.SEEK_SET)
        return hashlib.sha256(handle.read(length)).hexdigest()
