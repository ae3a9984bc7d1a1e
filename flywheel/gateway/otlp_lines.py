"""Exports of telemetry as lines of the gateway's log: one for each span that tells of a model call.

A line of its own for each is what intake counts, what an erasure blanks, and what a fault costs. The log records of one
span, in one export, share a line, since they hold one call together. What tells of no model call or evaluation is not
written at all: nobody would ever read it, and it could hold anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from flywheel.gateway.bodies import nests_deeper
from flywheel.gateway.identity import task_of
from flywheel.gateway.otlp_prompts import Prompts
from flywheel.gateway.state import Gateway
from flywheel.intake.decode import MAX_DEPTH
from flywheel.intake.formats import chat
from flywheel.intake.formats.gateway import OTLP
from flywheel.intake.formats.otel import asks, response_id, task_names, tells
from flywheel.intake.formats.otlp import Span, spans
from flywheel.intake.records import BadRecord, Json
from flywheel.store.digests import canonical_json
from flywheel.store.registry.schema import utc_now

MAX_LINE = 16 * 2**20
"""Longest line that is written, in bytes: half of what intake reads."""

_CERTAINLY_FITS = 256 * 2**10  # bytes of a message of which no line can be too long
_IDS = ("traceId", "spanId", "parentSpanId")

NO_SPAN = "an id is too long"
NO_TASK = "no task named: export to /otlp/<task>, or name the task as service.name"
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
TOO_LARGE = f"longer than {MAX_LINE} bytes as JSON"

Export = ExportTraceServiceRequest | ExportLogsServiceRequest


@dataclass
class Sorted:
    """What becomes of an export: lines to write, and how many spans or log records end otherwise.

    Args:
        written: spans or log records in the lines, by task.
        held: those of a prompt whose answer has not come.
        passed_over: those that tell of no model call.
        refused: those that cannot be written, by reason.
    """

    lines: list[Json] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=dict)
    held: int = 0
    passed_over: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def refuse(self, reason: str, count: int) -> None:
        """Count what cannot be written."""
        self.refused[reason] = self.refused.get(reason, 0) + count


def sort_export(gateway: Gateway, prompts: Prompts, export: Export, task: str | None, *, hex_ids: bool) -> Sorted:
    """Make lines of an export.

    Args:
        prompts: the log records of calls whose answers have not come, or only now.
        task: the task that the path names, if any.
        hex_ids: whether ids came as JSON has them, and not as bytes.
    """
    found = Sorted()
    for body, size, count in _bodies(export, hex_ids):
        try:
            (span,) = spans(body)
        except BadRecord:
            found.refuse(NO_SPAN, count)
            continue
        if span.is_log:
            size = prompts.complete(span, body, size)
        if not tells(span):
            found.held += count if asks(span) else 0
            found.passed_over += 0 if asks(span) else count
            continue
        own, answered = _task(gateway, span, task)
        line: Json = {
            "v": 1,
            "kind": OTLP,
            "id": f"otlp-{uuid.uuid4().hex}",
            "task": own,
            "ts": utc_now(),
            "body": body,
        }
        line |= {"answered": True} if answered else {}
        if (reason := _refusal(line, size)) is None:
            found.lines.append(line)
            found.written[line["task"]] = found.written.get(line["task"], 0) + count
        else:
            found.refuse(reason, count)
    return found


def _refusal(line: Json, size: int) -> str | None:
    if not line["task"]:
        return NO_TASK
    if nests_deeper(line, MAX_DEPTH):
        return TOO_DEEP
    return TOO_LARGE if size > _CERTAINLY_FITS and len(canonical_json(line)) > MAX_LINE else None


def _task(gateway: Gateway, span: Span, asked: str | None) -> tuple[str, bool]:
    """The task that a span is of, "" when nothing tells, and whether this gateway gave the answer that it tells of.

    An answer of ours is of the task that gave it, whatever the path says: there its interaction is.
    """
    tasks = sorted(gateway.config.tasks)
    answer = response_id(span)
    by = None if answer is None else gateway.upstreams.task_of(answer) or task_of(answer, tasks)
    named = (name for name in task_names(span) if isinstance(name, str) and name in gateway.config.tasks)
    only = tasks[0] if len(tasks) == 1 else ""
    return by or asked or next(named, only), bool(by)


def _bodies(export: Export, hex_ids: bool) -> Iterator[tuple[Json, int, int]]:
    """OTLP/JSON of each span, and of the log records of each span together, with its bytes and how many it holds."""
    if isinstance(export, ExportTraceServiceRequest):
        for row in export.resource_spans:
            resource = _json(row.resource)
            for scope in row.scope_spans:
                about = _json(scope.scope)
                for span in scope.spans:
                    inner = [{"scope": about, "spans": [{"name": "", **_entry(span, hex_ids)}]}]
                    yield {"resourceSpans": [{"resource": resource, "scopeSpans": inner}]}, span.ByteSize(), 1
        return
    for row in export.resource_logs:
        resource = _json(row.resource)
        for scope in row.scope_logs:
            about = _json(scope.scope)
            for records in _by_span(scope.log_records):
                inner = [{"scope": about, "logRecords": [_entry(record, hex_ids) for record in records]}]
                size = sum(record.ByteSize() for record in records)
                yield {"resourceLogs": [{"resource": resource, "scopeLogs": inner}]}, size, len(records)


def _by_span(records: Any) -> list[list[Any]]:
    """Log records put together by the span that they name; one that names none is alone."""
    found: dict[Any, list[Any]] = {}
    for place, record in enumerate(records):
        key = (record.trace_id, record.span_id) if record.span_id else place
        found.setdefault(key, []).append(record)
    return list(found.values())


def _entry(message: Message, hex_ids: bool) -> Json:
    """A span or log record in OTLP/JSON, in which ids are hexadecimal, without the links to other spans.

    What came as JSON was read as if its ids were base64, and is written back so: they are the letters that they were.
    """
    found = _json(message)
    found.pop("links", None)
    if not hex_ids:
        ids = {"traceId": message.trace_id, "spanId": message.span_id}
        ids["parentSpanId"] = getattr(message, "parent_span_id", b"")
        found |= {key: value.hex() for key, value in ids.items() if value}
    return found


def _json(message: Message) -> Json:
    return chat.mapping(MessageToDict(message, use_integers_for_enums=True))
