"""What a task reads: the gateway's log and the configured logs, each a set of files with a resume point per file.

A resume point is an offset together with digests of the file's first bytes and of those just before the offset. A
file that was truncated or replaced does not match them and is read from its start; what it repeats is a duplicate. Of a
compressed file the digests are of the compressed bytes that there were: as long as they stand, so does what they hold.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.config_logs import ColumnMap, LogEntry
from flywheel.intake.containers import JSON_LINES, PARQUET, Container, container_of, read_records
from flywheel.intake.places import Files, Readable, reached, shown
from flywheel.intake.reader import Line
from flywheel.store.home import Home
from flywheel.store.wal import is_live

GATEWAY = "gateway"

SETTLED_SECONDS = 60.0
"""A foreign log that has not changed for this long is not about to finish its last line."""

_WINDOW = 1024

UNREAD, WAITING, NOTHING = "unread", "waiting", "nothing"
"""What lies behind a resume point: records; the beginning of one; or nothing that could ever be read."""


@dataclass(frozen=True)
class Source:
    """One input of a task.

    Args:
        name: ``gateway``, or the path or URL as configured.
        fmt: a format's name, ``columns``, or ``auto``.
        files: label and file, in the order in which they are read.
        tail: what an unterminated last line means. ``log``: torn once no writer holds the file, else not yet;
            ``growing``: kept when it is whole JSON, torn once the file has settled, else not yet;
            ``finished``: kept when it is whole JSON, else torn. But for ``log``, which nobody appends to then, the
            resume point stays before a torn one: when it is written on, it is read from its start.
        columns: which column holds what, with ``fmt`` ``columns``.
    """

    name: str
    fmt: str
    files: Sequence[tuple[str, Readable]]
    tail: str
    columns: ColumnMap | None = None


def gateway_source(home: Home) -> Source:
    """The gateway's write-ahead log; boot names sort by time."""
    files: list[tuple[str, Readable]] = [(f"{GATEWAY}/{path.name}", path) for path in sorted(home.log.glob("*.jsonl"))]
    return Source(GATEWAY, "gateway", files, "log")


def path_source(
    path: str | Path,
    *,
    fmt: str = "auto",
    tail: str = "growing",
    columns: ColumnMap | None = None,
    home: Path | None = None,
) -> Source:
    """What lies at a path, a glob or a URL, listed at the first look: see `flywheel.intake.places.files_at`.

    Args:
        home: the deployment's own folder, which holds no logs of others.
    """
    place = str(path)
    return Source(shown(place), "columns" if columns else fmt, Files(place, home), tail, columns)


def task_sources(config: Config, home: Home, task: str) -> list[Source]:
    """All sources of a task."""
    logs = config.task(task).logs
    return [gateway_source(home), *(configured(log, home.root) for log in logs)]


def configured(log: LogEntry, home: Path) -> Source:
    """The source that an entry of ``logs`` describes, in the deployment with this home."""
    return path_source(log.path, fmt=log.format, columns=log.columns, home=home)


@dataclass(frozen=True)
class OpenFile:
    """A file about to be read on.

    Args:
        offset: where to start.
        restarted: whether an earlier resume point did not fit the file any more.
        closed: whether nobody will append to it; found before reading, so that what is read then is all there is.
        moved: whether the file is another than at the last look.
        torn: `torn_mark` of a piece behind the offset that was counted already, for want of its end; "" without one.
    """

    container: Container
    offset: int
    restarted: bool
    closed: bool
    moved: bool
    size: int
    mtime_ns: int
    inode: int
    torn: str = ""


def look(file: Readable, position: dict[str, Any] | None, tail: str) -> OpenFile | None:
    """How to read a file on, or None when there is nothing new in it.

    Raises IntakeError when the file cannot be read; a file that has just gone has nothing new.
    """
    try:
        with reached(file):
            stat = file.stat()
            facts = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
            known = position or {"offset": 0}
            moved = facts != (known.get("size"), known.get("mtime_ns"), known.get("inode"))
            if not moved and left(known) == NOTHING:
                return None
            closed = _closed(file, tail, stat.st_mtime)
            container = JSON_LINES if tail == "log" else container_of(file)
            fits = position is None or _fits(file, known, container, stat.st_size)
            offset, torn = (known["offset"], known.get("torn", "")) if fits else (0, "")
            return OpenFile(container, offset, not fits, closed, moved, *facts, torn=torn)
    except FileNotFoundError:
        return None


def left(position: dict[str, Any]) -> str:
    """What lies behind a resume point: ``unread``, ``waiting`` or ``nothing``."""
    whole = position["offset"] >= position.get("size", 0)
    return str(position.get("left", NOTHING if whole else WAITING))  # older points do not tell these two apart


def new_lines(file: Readable, facts: OpenFile, *, closed: bool = True) -> Iterator[Line]:
    """The records of a file behind its resume point, but for a torn one that was counted and is as it was.

    Raises as `flywheel.intake.containers.read_records` does.
    """
    for number, line in enumerate(read_records(file, facts.container, facts.offset, closed=closed)):
        if number or not facts.torn or torn_mark(line) != facts.torn:
            yield line


def torn_mark(line: Line) -> str:
    """What tells a torn piece from any other, and from what it becomes when it is written on; "" of a whole one."""
    if line.terminated:
        return ""
    return f"{line.end - line.offset} {hashlib.sha256(line.raw).hexdigest()}"


def resume_point(
    file: Readable, offset: int, facts: OpenFile, rest: str = UNREAD, torn: str = "", fault: str = ""
) -> dict[str, Any]:
    """What to store so that the next run goes on at ``offset``.

    Args:
        rest: what lies behind that.
        torn: `torn_mark` of a piece there that was counted already.
        fault: why the file could not be read to its end.
    """
    seen = offset if facts.container.addressable else facts.size
    head_length = min(seen, _WINDOW)
    point = {
        "offset": offset,
        "head_length": head_length,
        "head": _window(file, 0, head_length),
        "tail": _window(file, max(0, seen - _WINDOW), min(seen, _WINDOW)),
        "size": facts.size,
        "mtime_ns": facts.mtime_ns,
        "inode": facts.inode,
        "left": rest,
    }
    point |= {key: value for key, value in (("torn", torn), ("fault", fault)) if value}
    return point if facts.container.addressable else point | {"seen": seen}


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


def _closed(file: Readable, tail: str, modified: float) -> bool:
    if tail == "log":
        return not (isinstance(file, Path) and is_live(file))
    return tail == "finished" or time.time() - modified > SETTLED_SECONDS


def _fits(file: Readable, position: dict[str, Any], container: Container, size: int) -> bool:
    seen = position.get("seen", position["offset"])
    if size < seen or container.addressable == ("seen" in position):
        return False
    if container.kind == PARQUET and size != seen:
        return False  # nothing is ever appended to one
    before = _window(file, max(0, seen - _WINDOW), min(seen, _WINDOW))
    return bool(_window(file, 0, position["head_length"]) == position["head"] and before == position["tail"])


def _window(file: Readable, start: int, length: int) -> str:
    with file.open("rb") as handle:
        handle.seek(start, os.SEEK_SET)
        return hashlib.sha256(handle.read(length)).hexdigest()
