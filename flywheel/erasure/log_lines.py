"""Lines of the gateway's log as an erasure reads them: whose they are, and what they are about."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flywheel.erasure.scope import Scope
from flywheel.intake.formats.gateway import ERASED
from flywheel.store.digests import canonical_json
from flywheel.store.home import Home

_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")  # as intake reads ids: half of a surrogate pair, or NUL


@dataclass(frozen=True)
class Line:
    """What of one whole record matters.

    Args:
        names: ids of the call with its choices, or of the feedback.
        about: the conversation of a call; the interaction or conversation that feedback is about, unless it is named
            by metadata.
    """

    task: str
    call: bool
    user: str
    names: tuple[str, ...]
    about: str


def log_files(home: Home) -> list[Path]:
    """The files of the gateway's log, oldest first."""
    return sorted(home.log.glob("*.jsonl"))


def read_log(path: Path) -> Iterator[Line]:
    """The records of a log file that can be read; torn and foreign lines are passed over."""
    with path.open("rb") as file:
        for raw in file:
            if (line := parse(raw)) is not None:
                yield line


def parse(raw: bytes) -> Line | None:
    """The record of a line, or None when it holds none, or an erased one."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    task, own = _text(record.get("task")), _text(record.get("id"))
    if record.get("kind") == "interaction":
        choices = record.get("choices")
        further = range(1, len(choices)) if isinstance(choices, list) else ()
        names = (own, *(f"{own}#{place}" for place in further))
        return Line(task, True, _text(record.get("user")), names, _text(record.get("conversation_id")) or own)
    if record.get("kind") == "feedback":
        target = record.get("target")
        about = _text(target.get("id")) if isinstance(target, dict) else ""
        return Line(task, False, _text(record.get("author")), (own,), about)
    return None


def takes_line(scope: Scope, raw: bytes, tasks: list[str]) -> bool:
    """Whether a line goes: the person's own, one of their conversations, or about either.

    A line that is no whole record goes when it mentions the person or something of theirs. Feedback that names no
    task may be about any of ``tasks``.
    """
    line = parse(raw)
    if line is None:
        return not is_blank(raw) and any(scope.mentioned(task, raw.decode("utf-8", "replace")) for task in ["", *tasks])
    if scope.is_user(line.user):
        return True
    where = [line.task] if line.call or line.task else tasks
    return any(scope.has(task, *line.names, line.about) for task in where)


def is_blank(raw: bytes) -> bool:
    """Whether a line was erased already."""
    return raw.rstrip(b"\n") == blank(len(raw.rstrip(b"\n")))


def blank(length: int) -> bytes:
    """A JSON object of so many bytes that says that a record was erased; a very short one is an empty object."""
    text = canonical_json({"v": 1, "kind": ERASED})
    text = text if len(text) <= length else b"{}"
    return text[:-1] + b" " * (length - len(text)) + text[-1:]


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value) if isinstance(value, str) else ""
