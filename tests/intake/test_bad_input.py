"""Bad input in every format: kept, repaired with a mark, or quarantined with its reason and place; its neighbours stay.

For each format one file holds every case, each between two clean records of calls; it is imported once, and so are the
clean records alone. The cases are written in the format's own shape (`Call.written`).
"""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.config import parse_config
from flywheel.errors import IntakeError
from flywheel.intake import SourceReport, import_path
from flywheel.intake.formats import FORMATS
from flywheel.intake.reader import MAX_LINE
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema
from flywheel.store.segments import read_rows

NAMES = sorted(FORMATS)
TASK = "support_router"
CANARY = "canary-5f2e1c"
"""Stands in every bad record; no reason, log or report may say it."""

HALF, NUL = "\ud83d", "\x00"
GONE = "\N{REPLACEMENT CHARACTER}"
DEEP = 10_000

Row = dict[str, Any]
Ends = str | dict[str, str]

BAD_CHARACTER = "repaired: unstorable character"
NO_METADATA = ("open_webui", "otel")


@dataclass(frozen=True)
class Case:
    """A bad record.

    Args:
        ends: what becomes of it: ``kept``, ``kept + <mark>``, ``quarantined: <reason>`` or ``skipped: <rule>``; by
            format where they differ, under "" for the others.
        change: fields of the call.
        line: makes the line out of the JSON.
        holds: what its stored request and response say, or the ending of a column's value by ``column=``.
    """

    name: str
    ends: Ends
    change: Row = field(default_factory=dict)
    line: Callable[[bytes], bytes] = lambda line: line
    holds: str = ""

    def ending(self, fmt: str) -> str:
        """What must become of the record in a format."""
        return self.ends if isinstance(self.ends, str) else self.ends.get(fmt, self.ends[""])


def inside(found: bytes, put: bytes) -> Callable[[bytes], bytes]:
    """Replaces something in the line, which must be there."""

    def made(line: bytes) -> bytes:
        assert found in line
        return line.replace(found, put)

    return made


def first(text: bytes) -> Callable[[bytes], bytes]:
    """Puts keys before the first key of the record."""
    return lambda line: b"{" + text + b"," + line[1:]


def without(fmts: tuple[str, ...], ends: str) -> dict[str, str]:
    """The ending in all formats but some, which have no place for what is wrong."""
    return {"": ends, **dict.fromkeys(fmts, "kept")}


TEXT = CANARY.encode()
NOT_TEXT = "quarantined: a message's content is neither text nor parts"
NOT_JSON_NUMBER = "quarantined: NaN or infinity is not JSON"
CUT = "quarantined: the input looks like a chat but is not JSON; it may have been cut"
NO_CHAT = {"langfuse": CUT, "otel": "quarantined: the messages are not a list of objects; they may have been cut"}
IN_TEXT = {"": NOT_JSON_NUMBER, **NO_CHAT, "tensorzero": "quarantined: the input is not an object"}
NO_ID = {"": "kept", "open_webui": "quarantined: a message has no id"}
NO_ID |= dict.fromkeys(("gateway", "helicone", "tensorzero"), "quarantined: no id")
NO_ANSWER = {
    "": "kept",
    "open_webui": "skipped: chat without an answer",
    "openai_preference": "quarantined: an output is not an assistant's answer",
    "openai_responses": "quarantined: a text is not a string",
    "otel": "quarantined: a text is not a string",
    "tensorzero": "quarantined: a text block holds nothing",
}

CASES = [
    # bytes
    Case("a byte-order mark", "kept + repaired: byte-order mark", line=lambda line: b"\xef\xbb\xbf" + line),
    Case("a line end of Windows", "kept", line=lambda line: line + b"\r"),
    Case("a blank line", "skipped: blank line", line=lambda line: b""),
    Case("a line of white space", "skipped: blank line", line=lambda line: b" \t \r"),
    Case("a byte that is no UTF-8", "quarantined: not UTF-8", line=inside(TEXT, TEXT + b"\xff")),
    Case("half a character", "quarantined: not UTF-8", line=inside(TEXT, TEXT + "ü".encode()[:1])),
    Case("Latin-1", "quarantined: not UTF-8", line=inside(TEXT, TEXT + "ü".encode("latin-1"))),
    Case("a NUL byte in a text", "quarantined: not JSON", line=inside(TEXT, TEXT + b"\x00")),
    Case("NUL bytes around the record", "quarantined: not JSON", line=lambda line: b"\x00" * 9 + line + b"\x00"),
    Case("a truncated record", "quarantined: not JSON", line=lambda line: line[: len(line) // 2]),
    Case("a record without its last brace", "quarantined: not JSON", line=lambda line: line[:-1]),
    Case("two records on a line", "quarantined: not JSON", line=lambda line: line + line),
    Case("plain text", "quarantined: not JSON", line=lambda line: b"INFO " + TEXT),
    Case("a string", "quarantined: not a JSON object", line=lambda line: b'"' + TEXT + b'"'),
    Case("a list", "quarantined: not a JSON object", line=lambda line: b"[" + line + b"]"),
    Case("a comma too many", "quarantined: not JSON", line=lambda line: line[:-1] + b",}"),
    # nesting
    Case(
        "10,000 levels of lists beside it",
        "quarantined: nested too deeply",
        line=first(b'"x":' + b"[" * DEEP + b"]" * DEEP),
    ),
    Case(
        "10,000 levels of objects beside it",
        "quarantined: nested too deeply",
        line=first(b'"x":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    ),
    Case("10,000 levels that never close", "quarantined: nested too deeply", line=first(b'"x":' + b"[" * DEEP)),
    Case(
        "10,000 levels in the metadata",
        without(NO_METADATA, "quarantined: nested too deeply"),
        {"value": "deep"},
        line=lambda line: line.replace(b'"deep"', b"[" * DEEP + b"]" * DEEP),
    ),
    Case("10,000 levels in a text", "kept", {"text": "[" * DEEP + "]" * DEEP}, holds="[" * DEEP),
    Case("10,000 levels in arguments", "kept", {"arguments": '{"a":' * DEEP + "1" + "}" * DEEP}, holds='{"a":{"a":'),
    # numbers that JSON has not
    Case("NaN beside it", NOT_JSON_NUMBER, line=first(b'"x":NaN')),
    Case("Infinity beside it", NOT_JSON_NUMBER, line=first(b'"x":[Infinity]')),
    Case("-Infinity beside it", NOT_JSON_NUMBER, line=first(b'"x":{"logprob":-Infinity}')),
    Case("a number beyond all", "quarantined: number out of range", line=first(b'"x":1e999')),
    Case("NaN for a text", IN_TEXT, {"text": float("nan")}),
    Case("Infinity for a text", IN_TEXT, {"text": float("inf")}),
    Case("NaN for a time", NOT_JSON_NUMBER, {"ts": float("nan")}),
    Case("NaN for a count", without(("openai_preference", "tensorzero"), NOT_JSON_NUMBER), {"tokens": float("nan")}),
    Case("-Infinity in the metadata", without(NO_METADATA, NOT_JSON_NUMBER), {"value": float("-inf")}),
    Case("NaN in arguments", "kept", {"arguments": '{"a": NaN, "b": -Infinity}'}, holds='{"a": NaN, "b": -Infinity}'),
    Case("a number of 400 digits", "kept", line=first(b'"x":' + b"9" * 400)),
    # keys
    Case("a key twice", "kept + repaired: duplicate key", line=first(b'"x":1,"x":2')),
    Case(
        "every key twice, the last of them counting",
        "kept + repaired: duplicate key",
        {"text": f"{CANARY}-last"},
        line=lambda line: line.replace(b"-last", b"-first")[:-1] + b"," + line[1:],
        holds=f"{CANARY}-last",
    ),
    Case("duplicate keys in arguments", "kept", {"arguments": '{"a":1, "a" :2}'}, holds='{"a":1, "a" :2}'),
    Case("an empty key", "kept", {"key": ""}),
    # halves of surrogate pairs, and NUL
    *(
        Case(f"{what} in {place}", ends, {place: CANARY + what + character}, holds=holds.replace(GONE, what + GONE))
        for what, character in (("half a pair", HALF), ("NUL", NUL))
        for place, ends, holds in (
            ("text", f"kept + {BAD_CHARACTER}", CANARY + GONE),
            ("answer", f"kept + {BAD_CHARACTER}", CANARY + GONE),
            ("arguments", f"kept + {BAD_CHARACTER}", CANARY + GONE),
            ("id", f"kept + {BAD_CHARACTER}", f"interaction_id={CANARY + GONE}"),
            ("user", without(("openai_preference",), f"kept + {BAD_CHARACTER}"), ""),
            ("talk", without(("openai_preference",), f"kept + {BAD_CHARACTER}"), ""),
            ("key", without(NO_METADATA, f"kept + {BAD_CHARACTER}"), ""),
            ("value", without(NO_METADATA, f"kept + {BAD_CHARACTER}"), ""),
        )
    ),
    Case("half a pair as an escape in arguments", "kept", {"arguments": r'{"a":"\ud83d"}'}, holds=r'{"a":"\ud83d"}'),
    Case("whole pairs and other planes", "kept", {"text": "\N{GRINNING FACE}\x7f\u2028"}, holds="\N{GRINNING FACE}"),
    # content
    Case(
        "null for a question",
        {
            "": "kept",
            "openai_responses": NOT_TEXT,
            "otel": "quarantined: a text is not a string",
            "tensorzero": "quarantined: a text block holds nothing",
        },
        {"text": None},
    ),
    Case("null for an answer", NO_ANSWER, {"answer": None}),
    Case("an empty question", "kept", {"text": ""}),
    Case(
        "an empty answer",
        {
            "": "kept",
            "open_webui": "skipped: chat without an answer",
            "openai_preference": "quarantined: an output is not an assistant's answer",
            "otel": "quarantined: no answer",
        },
        {"answer": ""},
    ),
    Case(
        "a number for a question",
        {"": NOT_TEXT, "otel": "quarantined: a text is not a string", "tensorzero": "kept"},
        {"text": 5},
    ),
    Case("an unknown role", "kept", {"role": "robot"}, holds="robot"),
    *(Case(f"{role!r} for a role", "quarantined: a message has no role", {"role": role}) for role in (None, "", 7, [])),
    # ids, users, counts
    Case("a number for an id", "kept", {"id": 1234567890123456789}, holds="interaction_id=1234567890123456789"),
    Case("null for an id", NO_ID, {"id": None}),
    Case("an object for an id", NO_ID, {"id": {"a": CANARY}}),
    Case("an id of 600 characters", "quarantined: an id is too long", {"id": "x" * 600}),
    Case(
        "a conversation's id of 600 characters",
        without(("openai_preference",), "quarantined: an id is too long"),
        {"talk": "x" * 600},
    ),
    Case("a user of 5,000 characters", "kept", {"user": "x" * 5000}),
    Case("an object for a user", "kept", {"user": {"a": CANARY}}),
    Case("a text for a count", "kept", {"tokens": "9"}),
    Case("null for a count", "kept", {"tokens": None}),
]

NOON = datetime(2025, 11, 1, 10, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DAYS = datetime(1978, 1, 11, 21, 31, 40, 799_000, tzinfo=UTC)
TIMES: list[tuple[str, Any, datetime, str]] = [
    ("seconds", 1761991200, NOON, "ok"),
    ("seconds with a fraction", 1761991200.5, NOON.replace(microsecond=500_000), "ok"),
    ("milliseconds", 1761991200_000, NOON, "ok"),
    ("microseconds", 1761991200_000_000, NOON, "ok"),
    ("nanoseconds", 1761991200_000_000_000, NOON, "ok"),
    ("seconds as text", "1761991200", NOON, "ok"),
    ("nanoseconds as text", "1761991200000000000", NOON, "ok"),
    ("ISO with Z", "2025-11-01T10:00:00Z", NOON, "ok"),
    ("ISO with a zone", "2025-11-01T15:30:00+05:30", NOON, "ok"),
    ("ISO without a zone", "2025-11-01 10:00:00.000000", NOON, "ok"),
    ("1970", 0, EPOCH, "implausible"),
    ("1970 as text", "1970-01-01T00:00:01Z", EPOCH.replace(second=1), "implausible"),
    ("before 1970", -62135596800, EPOCH, "implausible"),
    ("far ahead", "2150-01-01T00:00:00Z", datetime(2150, 1, 1, tzinfo=UTC), "implausible"),
    ("year 9999", "9999-12-31T23:59:59Z", EPOCH, "implausible"),
    ("year 9999 in seconds, which is a date in milliseconds", 253402300799, FIRST_DAYS, "implausible"),
    ("year 0001", "0001-01-01T00:00:00+14:00", EPOCH, "missing"),
    ("a number beyond all times", 10**30, EPOCH, "missing"),
    ("words", f"yesterday {CANARY}", EPOCH, "missing"),
    ("no text", "", EPOCH, "missing"),
    ("null", None, EPOCH, "missing"),
    ("a boolean", True, EPOCH, "missing"),
    ("an object", {"a": CANARY}, EPOCH, "missing"),
]


@dataclass
class Imported:
    """What became of the file of a format.

    Args:
        offsets: of each case's line, by name.
        spoken: whatever was printed or logged meanwhile.
    """

    report: SourceReport
    offsets: dict[str, int]
    tables: dict[str, list[Row]]
    clean: dict[str, list[Row]]
    counts: list[Row]
    spoken: str

    def at(self, name: str, *tables: str) -> list[Row]:
        """The rows that a case's line became."""
        found = (row for table in tables for row in self.tables[table])
        return [row for row in found if row["source_offset"] == self.offsets[name]]

    def ending(self, name: str) -> str:
        """``kept``, ``quarantined: <reason>`` or ``gone`` for what was skipped."""
        bad = self.at(name, "quarantine")
        kept = self.at(name, "interactions", "feedback", "orphans")
        assert len(bad) <= 1 and not (bad and kept)
        return f"quarantined: {bad[0]['reason']}" if bad else "kept" if kept else "gone"


@dataclass
class Importer:
    """Imports files, each into a home of its own; all homes have the same key."""

    folder: Path
    registry: Path
    opened: list[Registry] = field(default_factory=list)

    def run(self, name: str, lines: list[bytes], fmt: str, end: bytes = b"\n") -> tuple[SourceReport, Row]:
        """Import lines as one file; the last one ends with ``end``. Returns the report, and the rows by table."""
        folder = self.folder / name
        config = parse_config({"home": "home", "tasks": {TASK: {"base": "tiny"}}}, folder / "flywheel.yaml")
        home = Home.of(config)
        (home.root / "secret.key").write_bytes(b"k" * 32)
        (home.root / "registry.db").write_bytes(self.registry.read_bytes())
        registry = Registry.of(config, actor="test")
        self.opened.append(registry)
        path = folder / "log.jsonl"
        path.write_bytes(b"\n".join(lines) + end)
        report = import_path(config, home, registry, TASK, path, fmt=fmt)
        report.check()
        order = {"interactions": "interaction_id", "feedback": "feedback_id", "orphans": "feedback_id"}
        names = (*order, "quarantine")
        tables = {table: read_rows(home, registry, table, TASK, order.get(table, "source_offset")) for table in names}
        with registry.read() as tx:
            return report, tables | {"counts": tx.rows(sa.select(schema.intake_counts))}


@pytest.fixture(scope="module")
def importer(tmp_path_factory: pytest.TempPathFactory, migrated_registry: Path) -> Iterator[Importer]:
    found = Importer(tmp_path_factory.mktemp("bad-input"), migrated_registry)
    yield found
    for registry in found.opened:
        registry.close()


def clean_call(call_class: Any, number: int) -> Any:
    """A neighbour: a call like any other."""
    return call_class(id=f"clean-{number:04d}", talk=f"clean-talk-{number}", ts=1764500000 + number, arguments="{ }")


def bad_call(call_class: Any, number: int, **change: Any) -> Any:
    """A call that says the canary wherever it says anything."""
    told = {"id": f"{CANARY}-{number}", "talk": f"{CANARY}-{number}", "text": CANARY, "answer": f"{CANARY} {number}"}
    return replace(call_class(user=CANARY, value=CANARY), **told | change)


def dumped(record: Row) -> bytes:
    return json.dumps(record).encode()


@pytest.fixture(scope="module", params=NAMES)
def imported(request: Any, importer: Importer, call_class: Any) -> tuple[str, Imported]:
    """The file of a format, imported."""
    fmt: str = request.param
    bad = {case.name: case.line(dumped(bad_call(call_class, k, **case.change).written(fmt))) for k, case in _numbered()}
    bad |= {
        f"time: {name}": dumped(bad_call(call_class, 1000 + k, ts=value).written(fmt))
        for k, (name, value, _, _) in enumerate(TIMES)
    }
    lines: list[bytes] = []
    offsets: dict[str, int] = {}
    for number, (name, line) in enumerate(bad.items()):
        lines.append(dumped(clean_call(call_class, number).written(fmt)))
        offsets[name] = sum(len(one) + 1 for one in lines)
        lines.append(line)
    lines.append(dumped(clean_call(call_class, len(bad)).written(fmt)))
    spoken, log = io.StringIO(), logging.StreamHandler(io.StringIO())
    logging.getLogger().addHandler(log)
    try:
        with redirect_stdout(spoken), redirect_stderr(spoken):
            report, tables = importer.run(f"{fmt}-mixed", lines, fmt)
    finally:
        logging.getLogger().removeHandler(log)
    _, clean = importer.run(f"{fmt}-clean", lines[::2], fmt)
    counts = tables.pop("counts")
    return fmt, Imported(report, offsets, tables, clean, counts, spoken.getvalue() + log.stream.getvalue())


def _numbered() -> Iterator[tuple[int, Case]]:
    return enumerate(CASES)


def test_no_format_is_left_out(call_class: Any) -> None:
    for fmt in FORMATS:
        assert call_class().written(fmt)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_record_is_kept_or_quarantined_with_its_reason_and_place(
    imported: tuple[str, Imported], case: Case
) -> None:
    fmt, found = imported
    ending = case.ending(fmt)
    assert found.ending(case.name) == ("gone" if ending.startswith("skipped") else ending.split(" + ")[0])
    if not case.holds or not ending.startswith("kept"):
        return
    row, *_ = found.at(case.name, "interactions")
    column, equals, value = case.holds.rpartition("=")
    if equals and column in row:
        assert row[column] == value
    else:
        said = strings([json.loads(row["request"]), json.loads(row["response"])])
        assert any(case.holds in text for text in said)


def strings(value: Any) -> list[str]:
    """Every text inside a value."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for one in inner for text in strings(one)]


@pytest.mark.parametrize(("name", "ts", "quality"), [(name, ts, quality) for name, _, ts, quality in TIMES])
def test_a_time_is_read_in_every_unit_and_one_that_cannot_be_true_is_marked(
    imported: tuple[str, Imported], name: str, ts: datetime, quality: str
) -> None:
    (row, *_) = imported[1].at(f"time: {name}", "interactions")
    assert (row["ts"], row["ts_quality"]) == (ts, quality)


def test_the_neighbours_of_bad_records_are_what_they_are_without_them(imported: tuple[str, Imported]) -> None:
    _, found = imported
    for table in ("interactions", "feedback", "orphans"):
        mixed = [row for row in found.tables[table] if row["source_offset"] not in found.offsets.values()]
        assert [content(row) for row in mixed] == [content(row) for row in found.clean[table]]
    assert len({row["source_offset"] for row in found.clean["interactions"]}) == len(CASES) + len(TIMES) + 1
    assert found.clean["quarantine"] == []


def content(row: Row) -> Row:
    """A row without the place where it was read and the time of its import."""
    return {key: value for key, value in row.items() if key not in ("source", "source_offset", "origin", "ingested_at")}


def test_every_ending_and_every_repair_is_counted(imported: tuple[str, Imported]) -> None:
    fmt, found = imported
    endings = [case.ending(fmt) for case in CASES]
    wanted: Counter[str] = Counter()
    for ending in endings:
        outcome, _, reason = ending.partition(": ")
        wanted.update([reason] if outcome in ("quarantined", "skipped") else ending.split(" + ")[1:])
    wanted.update(f"time {quality}" for *_, quality in TIMES if quality != "ok")
    assert found.report.reasons == wanted
    ended = Counter(ending.partition(":")[0].split(" + ")[0] for ending in endings)
    assert found.report.quarantined == ended["quarantined"] and found.report.skipped == ended["skipped"]
    assert found.report.kept == ended["kept"] + len(TIMES) + len(CASES) + len(TIMES) + 1
    assert found.report.duplicate == 0


def test_no_reason_report_or_log_says_what_a_record_held(imported: tuple[str, Imported]) -> None:
    _, found = imported
    reasons = [row["reason"] for row in found.tables["quarantine"]]
    assert len(reasons) > 20
    told = json.dumps([reasons, found.report.counts(), [row["reasons"] for row in found.counts]])
    assert CANARY not in told + found.spoken
    assert all(len(row["raw"]) <= 4096 for row in found.tables["quarantine"])


@pytest.mark.parametrize("fmt", NAMES)
def test_a_last_line_is_torn_when_it_is_cut_and_kept_when_only_its_end_is_missing(
    fmt: str, importer: Importer, call_class: Any
) -> None:
    before, last = (dumped(clean_call(call_class, number).written(fmt)) for number in range(2))
    cut = last[: len(last) // 2]
    report, tables = importer.run(f"{fmt}-torn", [before, cut], fmt, end=b"")
    assert (report.kept, report.quarantined, report.reasons) == (1, 1, {"torn last line": 1})
    (bad,) = tables["quarantine"]
    assert (bad["source_offset"], bad["raw"]) == (len(before) + 1, cut.decode())
    report, tables = importer.run(f"{fmt}-open", [before, last], fmt, end=b"")
    assert (report.kept, report.quarantined) == (2, 0)


def test_a_file_of_nothing_known_is_refused_without_quoting_it(importer: Importer) -> None:
    for line in (TEXT, b'{"' + TEXT + b'": 1}', b"[" * DEEP, b"\xff" + TEXT):
        with pytest.raises(IntakeError) as caught:
            importer.run(f"nothing-{len(importer.opened)}", [line] * 3, "auto")
        assert CANARY not in str(caught.value)


LONG = 20 * 2**20


@pytest.mark.parametrize("fmt", NAMES)
def test_a_record_of_20_mb_is_kept_whole_and_so_are_its_neighbours(
    fmt: str, importer: Importer, call_class: Any
) -> None:
    before, after = (dumped(clean_call(call_class, number).written(fmt)) for number in range(2))
    long = dumped(call_class(id="long", talk="long", text="long " * (LONG // 5)).written(fmt))
    report, tables = importer.run(f"{fmt}-long", [before, long, after], fmt)
    assert (report.kept, report.quarantined) == (3, 0) and len(long) < MAX_LINE
    (size,) = {len(row["request"]) for row in tables["interactions"] if row["interaction_id"] == "long"}
    assert size > LONG


FEEDBACK: dict[str, Callable[[Any], Row]] = {
    "gateway": lambda value: {
        "v": 1,
        "kind": "feedback",
        "id": "f",
        "task": TASK,
        "source": "user",
        "ts": 1764500000,
        "target": {"kind": "interaction", "id": "c"},
        "feedback": {"kind": "rating", "value": value},
    },
    "helicone": lambda value: {
        "request_id": "c",
        "request_created_at": 1764500000,
        "response_status": 200,
        "scores": {"clarity": value},
        "request_body": {"messages": [{"role": "user", "content": "Hi"}]},
        "response_body": {"choices": [{"message": {"role": "assistant", "content": "Hi"}}]},
    },
    "langfuse": lambda value: {
        "id": "s",
        "name": "clarity",
        "value": value,
        "data_type": "NUMERIC",
        "source": "API",
        "observation_id": "c",
        "timestamp": "2025-11-30 10:00:00",
    },
    "otel": lambda value: {
        "eventName": "gen_ai.evaluation.result",
        "timeUnixNano": 1764500000,
        "attributes": {
            "gen_ai.evaluation.name": "clarity",
            "gen_ai.evaluation.score.value": value,
            "gen_ai.response.id": "c",
        },
    },
    "tensorzero": lambda value: {
        "id": "f",
        "target_id": "c",
        "metric_name": "clarity",
        "value": value,
        "timestamp": 1764500000,
        "table": "FloatMetricFeedback",
    },
}
"""A number that somebody gave, in the formats that have one. Open WebUI's ratings are 1 or -1 only."""

ODD_NUMBERS: list[tuple[Any, float | None]] = [
    *((4, 4.0), ("4", 4.0), ("4.5", 4.5), (" 4.5 ", 4.5), ("4e0", 4.0)),
    *(("NaN", None), ("Infinity", None), ("four", None), ([], None), ({}, None)),
]


@pytest.mark.parametrize("fmt", sorted(FEEDBACK))
@pytest.mark.parametrize(("value", "number"), ODD_NUMBERS, ids=str)
def test_a_score_may_be_a_text_that_is_a_number_and_nothing_else(
    log_fixture: Any, fmt: str, value: Any, number: float | None
) -> None:
    found = log_fixture(fmt).read(FEEDBACK[fmt](value))
    if isinstance(found, dict):
        assert number is None and set(found) <= {"quarantined", "skipped"}
        return
    ratings = [one["value"] for one in found if one["record"] == "FeedbackRecord"]
    told = [one["value"] if isinstance(one, dict) else one for one in ratings]
    assert told == ([] if number is None else [number])


@pytest.mark.parametrize(("value", "thumb"), [(1, True), ("1", True), ("-1", False), (-1.0, False), ("up", None)])
def test_a_rating_of_open_webui_may_be_a_text(log_fixture: Any, value: Any, thumb: bool | None) -> None:
    row = {"id": "f", "user_id": "u", "type": "rating", "data": {"rating": value}, "meta": {"message_id": "c"}}
    found = log_fixture("open_webui").read(row)
    if thumb is None:
        assert found == {"quarantined": "the rating is neither 1 nor -1"}
    else:
        assert [(one["kind"], one["value"]) for one in found] == [("thumb", thumb)]


MEMORY = """
import resource, sys
from pathlib import Path
from flywheel.config import load_config
from flywheel.intake import import_path
from flywheel.store.home import Home
from flywheel.store.registry import Registry
config = load_config(Path(sys.argv[1]) / "flywheel.yaml")
registry = Registry.of(config, actor="test")
report = import_path(config, Home.of(config), registry, "support_router", Path(sys.argv[1]) / "log.jsonl")
registry.close()
usage = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(report.kept, report.quarantined, sum(usage))
"""


def test_memory_does_not_grow_with_the_number_of_long_records(tmp_path: Path, call_class: Any) -> None:
    size, peaks = LONG // 4, []
    for count in (5, 17):  # the first fill a chunk
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / "flywheel.yaml").write_text(f"home: home\ntasks: {{{TASK}: {{base: tiny}}}}\n")
        with (folder / "log.jsonl").open("wb") as log:
            for number in range(count):
                call = call_class(id=f"c{number}", talk=f"t{number}", text="long " * (size // 5))
                log.write(dumped(call.written("openai_chat")) + b"\n")
            log.write(b'{"messages": "' + b"x" * MAX_LINE + b'"}\n')
        command = [sys.executable, "-c", MEMORY, str(folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=240)
        kept, quarantined, peak = map(int, done.stdout.split())
        assert (kept, quarantined) == (count, 1)
        peaks.append(peak * 1024)
    assert peaks[1] - peaks[0] < 8 * size
