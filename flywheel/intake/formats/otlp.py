"""The outer shape of OpenTelemetry exports: spans and log records out of OTLP/JSON files and out of single spans.

Read are OTLP's envelopes (``resourceSpans`` -> ``scopeSpans`` -> ``spans``, and the same for logs), in their camel case
and with the names that protobuf libraries keep, one span or log record by itself, and what the SDKs' console exporters
print. Attributes are key/value lists with typed values or plain objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from flywheel.intake.formats import chat
from flywheel.intake.records import BadRecord, Json

_ENVELOPES = (
    (("resourceSpans", "resource_spans", "batches"), ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")),
    (("resourceLogs", "resource_logs"), ("scopeLogs", "scope_logs")),
)
_ENTRIES = ("spans", "logRecords", "log_records")
_TYPES = ("stringValue", "boolValue", "bytesValue", "intValue", "doubleValue", "arrayValue", "kvlistValue")
_FAILED = (2, "2", "ERROR", "STATUS_CODE_ERROR", "StatusCode.ERROR", "Error")


@dataclass(frozen=True)
class Event:
    """An event of a span, or a log record that is one.

    Args:
        body: what a log record holds beside its attributes.
    """

    name: str
    ts: Any
    attributes: Json
    body: Any = None


@dataclass(frozen=True)
class Span:
    """A span; or the log records that one line holds of a span, as a span without times of its own.

    Args:
        start: as found, as is ``end``.
        failed: whether its status is an error.
        resource: attributes of what sent it.
    """

    name: str
    trace_id: str | None
    span_id: str | None
    parent_id: str | None = None
    start: Any = None
    end: Any = None
    failed: bool = False
    attributes: Json = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    is_log: bool = False
    resource: Json = field(default_factory=dict)


def is_telemetry(record: Json) -> bool:
    """Whether a record is an OTLP envelope, a span or a log record."""
    if any(key in record for keys, _ in _ENVELOPES for key in keys):
        return True
    return "attributes" in record and any(key in record for key in ("name", "eventName", "event_name", "body"))


def spans(record: Json) -> list[Span]:
    """The spans of a record, in order; log records follow, put together by span. Raises BadRecord for broken shapes."""
    found: list[Span] = []
    logs: dict[tuple[str | None, str | None], Span] = {}
    for entry, resource in _entries(record):
        if "name" in entry:
            found.append(_span(entry, resource))
            continue
        trace, own = _id(entry, "trace"), _id(entry, "span")
        attributes = plain_attributes(entry.get("attributes"))
        name = chat.first(_get(entry, "eventName", "event_name"), attributes.get("event.name"), "")
        ts = _get(
            entry, "timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano", "timestamp"
        )
        held = logs.setdefault((trace, own), Span("", trace, own, start=_time(ts), is_log=True, resource=resource))
        held.events.append(Event(str(name), _time(ts), attributes, plain(entry.get("body"))))
    return [*found, *logs.values()]


def _entries(record: Json) -> Iterator[tuple[Json, Json]]:
    """Spans and log records as they stand, each with the attributes of its resource."""
    for outer, inner_keys in _ENVELOPES:
        if (resources := _get(record, *outer)) is not None:
            for row in _objects(resources):
                resource = plain_attributes(chat.mapping(row.get("resource")).get("attributes"))
                for scope in _objects(_get(row, *inner_keys)):
                    yield from ((entry, resource) for entry in _objects(_get(scope, *_ENTRIES)))
            return
    yield record, plain_attributes(chat.mapping(record.get("resource")).get("attributes"))


def _span(entry: Json, resource: Json) -> Span:
    events = []
    for event in _objects(entry.get("events")):
        ts = _time(_get(event, "timeUnixNano", "time_unix_nano", "timestamp", "time"))
        name = chat.text(event.get("name")) or ""
        events.append(Event(name, ts, plain_attributes(event.get("attributes")), plain(event.get("body"))))
    status = entry.get("status")
    code = _get(status, "code", "status_code") if isinstance(status, dict) else status
    return Span(
        name=chat.text(entry.get("name")) or "",
        trace_id=_id(entry, "trace"),
        span_id=_id(entry, "span"),
        parent_id=_hex(_get(entry, "parentSpanId", "parent_span_id", "parentId", "parent_id")),
        start=_time(_get(entry, "startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time")),
        end=_time(_get(entry, "endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time")),
        failed=not isinstance(code, bool | list | dict) and code in _FAILED,
        attributes=plain_attributes(entry.get("attributes")),
        events=events,
        resource=resource,
    )


def plain_attributes(value: Any) -> Json:
    """Attributes as one object with plain values, from either form; what is neither says nothing."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    rows = value if isinstance(value, list) else []
    pairs = [(row.get("key"), row.get("value")) for row in rows if isinstance(row, dict)]
    return {key: plain(item) for key, item in pairs if isinstance(key, str)}


def plain(value: Any) -> Any:
    """A value without its type: ``{"intValue": "5"}`` is 5. One that carries none stays as it is."""
    if not isinstance(value, dict):
        return value
    typed = [(kind, held) for key, held in value.items() if (kind := key.replace("_v", "V")) in _TYPES]
    if len(typed) != 1:
        return value
    ((kind, held),) = typed
    if kind in ("stringValue", "boolValue", "bytesValue"):
        return held
    if kind in ("intValue", "doubleValue"):
        number = chat.number(held)
        return (
            held if number is None or not isinstance(held, str) else int(held) if held.lstrip("-").isdigit() else number
        )
    if kind == "arrayValue" and isinstance(held, dict):
        return [plain(item) for item in _list(held.get("values"))]
    if kind == "kvlistValue" and isinstance(held, dict):
        return plain_attributes(held.get("values"))
    return value


def _id(entry: Json, kind: str) -> str | None:
    context = chat.mapping(entry.get("context"))
    names = (f"{kind}Id", f"{kind}_id")
    return _hex(chat.first(_get(entry, *names), _get(context, *names)))


def _hex(value: Any) -> str | None:
    found = chat.identifier(value)
    return found.removeprefix("0x") if found is not None else None


def _time(value: Any) -> Any:
    """A time as found; the pair of seconds and nanoseconds that JavaScript keeps, as nanoseconds."""
    if isinstance(value, list) and len(value) == 2 and all(type(part) is int for part in value):
        return value[0] * 10**9 + value[1]
    return value


def _get(row: Json, *names: str) -> Any:
    return chat.first(*(row.get(name) for name in names))


def _objects(value: Any) -> list[Json]:
    rows = _list(value)
    if not all(isinstance(row, dict) for row in rows):
        raise BadRecord("a part of the export is not an object")
    return rows


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
