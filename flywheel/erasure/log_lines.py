"""Lines of the gateway's log as an erasure reads them: whose they are, and what they are about."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flywheel.erasure.scope import Scope
from flywheel.intake.decode import decode
from flywheel.intake.formats.gateway import ERASED, OTLP, telemetry
from flywheel.intake.formats.langfuse_scores import TRACE as LANGFUSE_TRACE
from flywheel.intake.formats.otel_evaluation import SPAN, TRACE
from flywheel.intake.records import BadRecord, FeedbackRecord, InteractionRecord, SkippedRecord
from flywheel.store.digests import canonical_json
from flywheel.store.home import Home

_KNOWN_AS = (SPAN, TRACE, LANGFUSE_TRACE)
_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")  # as intake reads ids: half of a surrogate pair, or NUL


@dataclass(frozen=True)
class Line:
    """What of one whole record matters.

    Args:
        names: ids of the call with its choices, or of the feedback.
        about: the conversation of a call; the interaction or conversation that feedback is about, unless it is named
            by metadata.
        known_as: further ids by which others may mean a call; what they mean may be more than this call.
    """

    task: str
    call: bool
    user: str
    names: tuple[str, ...]
    about: str
    known_as: tuple[str, ...] = ()


def log_files(home: Home) -> list[Path]:
    """The files of the gateway's log, oldest first."""
    return sorted(home.log.glob("*.jsonl"))


def read_log(path: Path) -> Iterator[Line]:
    """The records of a log file that can be read; torn and foreign lines are passed over."""
    with path.open("rb") as file:
        for raw in file:
            yield from parse(raw)


def parse(raw: bytes) -> list[Line]:
    """The record of a line, several where it is telemetry; none when it holds none, or an erased one."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return []
    if not isinstance(record, dict):
        return []
    if record.get("kind") == OTLP:
        return _telemetry(raw)
    task, own = _text(record.get("task")), _text(record.get("id"))
    if record.get("kind") == "interaction":
        choices = record.get("choices")
        further = range(1, len(choices)) if isinstance(choices, list) else ()
        names = (own, *(f"{own}#{place}" for place in further))
        return [Line(task, True, _text(record.get("user")), names, _text(record.get("conversation_id")) or own)]
    if record.get("kind") == "feedback":
        target = record.get("target")
        about = _text(target.get("id")) if isinstance(target, dict) else ""
        return [Line(task, False, _text(record.get("author")), (own,), about)]
    return []


def _telemetry(raw: bytes) -> list[Line]:
    """The calls and evaluations in a line of telemetry, as intake reads them.

    Calls are also known by their span and their trace, by which evaluations elsewhere may mean them.
    """
    try:
        record = decode(raw)[0]
        found = telemetry(record)
    except (BadRecord, SkippedRecord):
        return []
    task, lines = _text(record.get("task")), []
    for one in found:
        if isinstance(one, InteractionRecord):
            own = one.call_id or ""
            names = (own, *(f"{own}#{place}" for place in range(1, len(one.choices))))
            known_as = tuple(str(one.metadata[key]) for key in _KNOWN_AS if one.metadata.get(key))
            lines.append(Line(task, True, one.user or "", names, one.conversation_id or own, known_as))
        elif isinstance(one, FeedbackRecord):
            about = str(json.loads(one.target)["value"]) if one.target_kind == "metadata" else one.target
            lines.append(Line(task, False, one.author or "", (one.feedback_id or "",), about))
    return lines


def takes_line(scope: Scope, raw: bytes, tasks: list[str]) -> bool:
    """Whether a line goes: the person's own, one of their conversations, or about either.

    A line that is no whole record, or of which intake makes nothing, goes when it mentions the person or something of
    theirs. Feedback that names no task may be about any of ``tasks``.
    """
    lines = parse(raw)
    if not lines:
        return not is_blank(raw) and any(scope.mentioned(task, raw.decode("utf-8", "replace")) for task in ["", *tasks])
    return any(_takes(scope, line, tasks) for line in lines)


def _takes(scope: Scope, line: Line, tasks: list[str]) -> bool:
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
