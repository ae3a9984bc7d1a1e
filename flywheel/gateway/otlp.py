"""``POST /v1/traces`` and ``/v1/logs``: the receiver that every OTLP/HTTP exporter can be pointed at.

The same paths below ``/otlp/<task>`` are for one task. A 2xx means that every call in the export is on disk, but for
what it refused, which ``partial_success`` in the answer says, and for prompts whose answers are yet to come. Answers
and errors are OTLP's, in the encoding of the request: protobuf or JSON. Retries are harmless, intake knows each call by
its id.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from flywheel.errors import RequestError, StoreError
from flywheel.gateway.bodies import parse_object, read_body
from flywheel.gateway.errors import retry_headers, unavailable
from flywheel.gateway.metrics import UNKNOWN
from flywheel.gateway.otlp_lines import Export, Sorted, sort_export
from flywheel.gateway.otlp_prompts import Prompts
from flywheel.gateway.state import Gateway

MAX_EXPORT_BYTES = 20 * 2**20
"""Largest export, as sent and unpacked: what the collector's receiver takes too. An SDK drops what is refused."""

MAX_EXPORTS = 8
"""Exports that may be under way at once."""

PROTOBUF, JSON = "application/x-protobuf", "application/json"

_SIGNALS: dict[str, type[Export]] = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 413: 3, 415: 3, 429: 8, 503: 14}  # of google.rpc.Code
_NO_METRICS = "Metrics are not recorded here; switch their export off: OTEL_METRICS_EXPORTER=none."


class Receiver:
    """Takes exports in.

    Attributes:
        under_way: exports that are being read or written now.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._prompts = Prompts()
        self.under_way = 0

    async def take(self, request: Request, signal: str, task: str | None) -> Response:
        """The endpoint of a signal: ``traces``, ``logs``, or ``metrics``, which is refused."""
        encoding = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        status = "200"
        self.under_way += 1
        try:
            answer = await self._take(request, signal, task, encoding)
        except RequestError as error:
            status = str(error.status)
            return _error(error, encoding)
        finally:
            self.under_way -= 1
            self._gateway.metrics.otlp_exports.labels(signal, status).inc()
        return Response(_encoded(answer, encoding), media_type=encoding)

    async def _take(self, request: Request, signal: str, task: str | None, encoding: str) -> Message:
        gateway = self._gateway
        await gateway.keys.authorize(request.headers.get("authorization"), "ingest")
        if signal not in _SIGNALS:
            raise RequestError(_NO_METRICS, status=404, code="unknown_url")
        if task is not None and task not in gateway.config.tasks:
            tasks = ", ".join(sorted(gateway.config.tasks))
            raise RequestError(f"No such task in the path; one of {tasks}.", status=404, code="unknown_task")
        if encoding not in (PROTOBUF, JSON):
            raise RequestError(f"Content-Type must be {PROTOBUF} or {JSON}.", status=415, code="unsupported_media_type")
        if self.under_way > MAX_EXPORTS:
            message = f"{MAX_EXPORTS} exports are under way, as many as may be; try again."
            raise RequestError(message, status=429, code="queue_full", retry_after_s=1.0)
        if gateway.wal.failing():
            raise unavailable("The log cannot be written just now; try again.", "log_unavailable")
        raw = await read_body(request, MAX_EXPORT_BYTES)
        packing = request.headers.get("content-encoding", "identity").strip().lower()
        try:
            found, writes = await asyncio.to_thread(self._write, raw, packing, signal, task, encoding)
            for result in await asyncio.gather(*map(asyncio.wrap_future, writes), return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        except StoreError:
            raise unavailable("The export could not be written to disk; send it again.", "log_unavailable") from None
        self._count(signal, found)
        return _answer(signal, found)

    def _write(
        self, raw: bytes, packing: str, signal: str, task: str | None, encoding: str
    ) -> tuple[Sorted, list[Any]]:
        """On a thread, since a large export takes its time."""
        export = _parsed(_unpacked(raw, packing), encoding, _SIGNALS[signal])
        found = sort_export(self._gateway, self._prompts, export, task, hex_ids=encoding == JSON)
        return found, [self._gateway.wal.append(line) for line in found.lines]

    def _count(self, signal: str, found: Sorted) -> None:
        counter = self._gateway.metrics.otlp_records
        for task, count in found.written.items():
            counter.labels(signal, task, "written").inc(count)
        counter.labels(signal, UNKNOWN, "held").inc(found.held)
        counter.labels(signal, UNKNOWN, "passed over").inc(found.passed_over)
        counter.labels(signal, UNKNOWN, "refused").inc(sum(found.refused.values()))


def otlp_routes(gateway: Gateway) -> APIRouter:
    """The routes of all signals, with and without a task."""
    router, receiver = APIRouter(), Receiver(gateway)

    def serve(signal: str) -> None:
        @router.post(f"/v1/{signal}")
        async def any_task(request: Request) -> Response:
            return await receiver.take(request, signal, None)

        @router.post(f"/otlp/{{task}}/v1/{signal}")
        async def one_task(request: Request, task: str) -> Response:
            return await receiver.take(request, signal, task)

    for signal in (*_SIGNALS, "metrics"):
        serve(signal)
    return router


def _unpacked(raw: bytes, packing: str) -> bytes:
    if packing in ("", "identity"):
        return raw
    if packing not in ("gzip", "x-gzip"):
        raise RequestError("Content-Encoding must be gzip, or none.", status=415, code="unsupported_encoding")
    inflate = zlib.decompressobj(wbits=31)
    try:
        found = inflate.decompress(raw, MAX_EXPORT_BYTES + 1)
    except zlib.error:
        raise RequestError("The body is not gzip.", code="invalid_gzip") from None
    if len(found) > MAX_EXPORT_BYTES:
        message = f"The export exceeds {MAX_EXPORT_BYTES} bytes when unpacked; export fewer spans at once."
        raise RequestError(message, status=413, code="request_too_large")
    if not inflate.eof:
        raise RequestError("The body ends before its gzip stream does.", code="invalid_gzip")
    return found


def _parsed(body: bytes, encoding: str, kind: type[Export]) -> Export:
    export = kind()
    if encoding == PROTOBUF:
        try:
            export.ParseFromString(body)
        except DecodeError:
            raise RequestError(f"The body is no {kind.DESCRIPTOR.name}.", code="invalid_protobuf") from None
        return export
    try:
        ParseDict(parse_object(body), export, ignore_unknown_fields=True)
    except (ParseError, RecursionError):  # what it says quotes the body
        raise RequestError(f"The body is no {kind.DESCRIPTOR.name} in OTLP/JSON.", code="invalid_otlp") from None
    return export


def _answer(signal: str, found: Sorted) -> Message:
    """The success, with what was refused and why."""
    count = sum(found.refused.values())
    why = "; ".join(f"{number} refused: {reason}" for reason, number in sorted(found.refused.items()))
    if signal == "logs":
        records = ExportLogsPartialSuccess(rejected_log_records=count, error_message=why)
        return ExportLogsServiceResponse(partial_success=records if count else None)
    spans = ExportTracePartialSuccess(rejected_spans=count, error_message=why)
    return ExportTraceServiceResponse(partial_success=spans if count else None)


def _error(error: RequestError, encoding: str) -> Response:
    """A google.rpc.Status: a code and a message, which on the wire are just the two fields of a partial success."""
    code = _CODES.get(error.status, 13)
    if encoding == PROTOBUF:
        body = ExportTracePartialSuccess(rejected_spans=code, error_message=error.message).SerializeToString()
        return Response(body, error.status, retry_headers(error), media_type=PROTOBUF)
    return JSONResponse({"code": code, "message": error.message}, error.status, retry_headers(error))


def _encoded(message: Message, encoding: str) -> bytes:
    return bytes(message.SerializeToString() if encoding == PROTOBUF else MessageToJson(message, indent=None).encode())
