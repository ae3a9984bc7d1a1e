"""What an import would do, before it does it: the detected format and why, some records as they will be stored, counts.

The preview holds text of the log. It is for the person who imports, on their terminal, and is stored nowhere.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flywheel.config import Config
from flywheel.intake import erased as erasing
from flywheel.intake.batch import Item, Rejected
from flywheel.intake.decode import decode
from flywheel.intake.detect import format_of
from flywheel.intake.formats import LogFormat
from flywheel.intake.mapping import item_of
from flywheel.intake.normalise import Normaliser
from flywheel.intake.reader import FileFault, Line
from flywheel.intake.reading import Reading
from flywheel.intake.records import BadRecord, Dropped, InteractionRecord, Json, Record, SkippedRecord
from flywheel.intake.report import SourceReport
from flywheel.intake.sources import Source, look, new_lines
from flywheel.store.erased import Erased
from flywheel.store.home import Home
from flywheel.store.registry import Registry

SHOWN = 3
LOOK_AT = 50
WIDTH = 100


@dataclass
class Preview:
    """What the first records of a source are.

    Args:
        looked_at: records that were looked at; blank lines are none.
        formats: name, ``why`` it was detected and how many of those records, by format.
        records: the first that can be used, as they would be stored, in short.
        unusable: how many of those records cannot be used, by reason.
    """

    looked_at: int = 0
    formats: list[Json] = field(default_factory=list)
    records: list[Json] = field(default_factory=list)
    unusable: dict[str, int] = field(default_factory=dict)


def preview(
    config: Config, home: Home, registry: Registry, task: str, source: Source, *, again: bool = False
) -> Preview:
    """Look at the first records of a source that were not taken in yet; with ``again`` at the first of all."""
    found = Preview()
    formats: dict[str, tuple[LogFormat, int]] = {}
    unusable: Counter[str] = Counter()
    reader = Reading(config, home, registry, task, "preview")
    with registry.read() as tx:
        shorten = _Shorten(reader.normaliser, Erased(home, tx, task))
    for line, item in _unread(source, reader, {} if again else reader.position(source)[0], {}):
        if not line.raw.strip():
            continue
        found.looked_at += 1
        if (fmt := _format(line, source)) is not None:
            formats[fmt.name] = fmt, formats.get(fmt.name, (fmt, 0))[1] + 1
        if isinstance(item.found, Rejected):
            unusable[item.found.reason] += 1
        elif len(found.records) < SHOWN:
            found.records += shorten(item)[: SHOWN - len(found.records)]
        if found.looked_at == LOOK_AT:
            break
    ordered = sorted(formats.values(), key=lambda pair: -pair[1])
    found.formats = [{"format": fmt.name, "why": _why(source, fmt), "records": count} for fmt, count in ordered]
    found.unusable = dict(unusable)
    return found


def examine(config: Config, home: Home, registry: Registry, task: str, source: Source) -> SourceReport:
    """Read a source from its start, as an import that begins there would, and store nothing.

    Records that can be used count as kept; how many of them are duplicates shows only when they are taken in.
    """
    report = SourceReport(source.name)
    reader = Reading(config, home, registry, task, "preview")
    looked: dict[str, str] = {}
    for _, item in _unread(source, reader, {}, looked):
        if isinstance(item.found, Rejected):
            report.count(item.found.outcome, item.found.reason)
        else:
            report.count("kept", *(f"repaired: {note}" for note in item.notes))
    report.tell([fault for fault in looked.values() if fault])
    return report


def _unread(
    source: Source, reader: Reading, positions: Mapping[str, Any], looked: dict[str, str]
) -> Iterator[tuple[Line, Item]]:
    """What lies behind these resume points; ``looked`` gets the files, and why one cannot be read to its end."""
    for label, file in source.files:
        if (facts := look(file, positions.get(label), source.tail)) is None:
            continue
        looked[label] = ""
        try:
            for line in new_lines(file, facts):
                if (item := item_of(line, label, source, True, reader.context)) is not None:
                    yield line, item
        except FileFault as ended:
            looked[label] = str(ended)


def _format(line: Line, source: Source) -> LogFormat | None:
    try:
        return format_of(decode(line.raw)[0], source.fmt, source.columns)
    except (BadRecord, SkippedRecord):
        return None


def _why(source: Source, fmt: LogFormat) -> str:
    if source.columns is not None:
        return "because its columns were named"
    if source.fmt != "auto":
        return "because it was named"
    return f"because its records have {fmt.keys or 'the keys of this format'}"


@dataclass(frozen=True)
class _Shorten:
    """Makes rows of records, and says in short what is in them."""

    normaliser: Normaliser
    erased: Erased

    def __call__(self, item: Item) -> list[Json]:
        assert not isinstance(item.found, Rejected)
        return [self._one(record, item) for record in item.found if not isinstance(record, Dropped)]

    def _one(self, record: Record, item: Item) -> Json:
        if isinstance(record, InteractionRecord):
            rows = [row._asdict() for row in self.normaliser.interaction(record, item.file, item.offset)]
            told = _call(record, rows)
        else:
            rows = [self.normaliser.feedback(record, item.file, item.offset)[0]]
            told = _feedback(rows[0])
        gone = erasing.reason(self.erased, rows[0]) if self.erased.anybody else None
        return {"record": told["record"], "id": told["id"], "skipped": gone[0]} if gone else told


def _call(record: InteractionRecord, rows: list[Json]) -> Json:
    first = rows[0]
    asked = [message for message in record.messages if message.get("role") == "user"] or record.messages
    answers = [_said(json.loads(row["response"])["message"]) for row in rows]
    return {
        "record": "call",
        "id": first["interaction_id"],
        "time": first["ts"].isoformat() if first["ts_quality"] != "missing" else None,
        "time_quality": first["ts_quality"],
        "user_key": first["user_key"][:12] or None,
        "conversation": first["conversation_id"],
        "model": first["release"] or first["model_requested"] or None,
        "asked": _said(asked[-1]) if asked else "",
        "answered": answers[0] if len(answers) == 1 else f"{len(answers)} choices: {answers[0]}",
    }


def _feedback(row: Json) -> Json:
    return {
        "record": "feedback",
        "id": row["feedback_id"],
        "kind": row["kind"],
        "value": json.loads(row["value"]),
        "text": _cut(row["text"]),
        "from": row["source"],
        "about": _about(row["target_kind"], row["target_id"]),
    }


def _about(kind: str, target: str) -> str:
    """What feedback is about, in words."""
    if kind == "metadata":
        key = json.loads(target)
        return f"the call whose {key['key']} is {key['value']}"
    what = {"interaction": "the call", "conversation": "the conversation"}
    return f"{what.get(kind, 'the call or conversation with the id')} {target}"


def _said(message: Json) -> str:
    """The text of a message on one line; for what is not text, its kind."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [_part(part) for part in parts if part]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        texts.append(f"[calls {function.get('name')}]" if isinstance(function, dict) else "[calls a tool]")
    return _cut(" ".join(texts))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text")
        return text if isinstance(text, str) else f"[{part.get('type') or 'part'}]"
    return "[part]"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "\N{HORIZONTAL ELLIPSIS}"
