"""The OTLP/HTTP receiver: what exporters send is on disk before the 2xx, one line a call, and answered as OTLP says."""

from __future__ import annotations

import base64
import gzip
import json
import logging
from concurrent.futures import Future
from typing import Any

import httpx
import pytest
from google.protobuf.json_format import Parse
from google.rpc.status_pb2 import Status
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from flywheel.errors import StoreError
from flywheel.gateway import otlp
from flywheel.gateway.keys import create_key
from flywheel.gateway.otlp_prompts import Prompts
from flywheel.intake import run_intake
from flywheel.intake.formats.otlp import spans
from flywheel.store.segments import read_rows
from flywheel.store.wal import WriteAheadLog

TASK, OTHER = "support_router", "summary"
TRACES, LOGS = f"/otlp/{TASK}/v1/traces", f"/otlp/{TASK}/v1/logs"
PROTOBUF, JSON = "application/x-protobuf", "application/json"
START = 1_793_527_200_000_000_000


def value(held: Any) -> dict[str, Any]:
    """A value as OTLP writes it."""
    if isinstance(held, list):
        return {"arrayValue": {"values": [value(item) for item in held]}}
    if isinstance(held, dict):
        return {"kvlistValue": {"values": pairs(held)}}
    kinds = {str: "stringValue", bool: "boolValue", float: "doubleValue"}
    return {"intValue": str(held)} if type(held) is int else {kinds[type(held)]: held}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(held)} for key, held in attributes.items()]


def talk(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def span(number: int, answer: str | None = None, said: str = "hello", **attributes: Any) -> dict[str, Any]:
    """A model call."""
    own = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": answer or f"resp-{number}",
        "gen_ai.input.messages": talk("user", f"ask {number}"),
        "gen_ai.output.messages": talk("assistant", said),
    }
    held = own | {key.replace("__", "."): item for key, item in attributes.items()}
    times = {"startTimeUnixNano": str(START), "endTimeUnixNano": str(START + 10**9)}
    ids = {"traceId": f"{number:032x}", "spanId": f"{number:016x}", "parentSpanId": "00f067aa0ba902b7"}
    return {**ids, "name": "chat m", **times, "attributes": pairs(held), "status": {"code": 1}}


def export(*spans: dict[str, Any], service: str = "") -> dict[str, Any]:
    resource = {"attributes": pairs({"service.name": service})} if service else {}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "s"}, "spans": list(spans)}]}]}


def log_export(*records: dict[str, Any]) -> dict[str, Any]:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]}


def event(number: int, name: str, body: Any) -> dict[str, Any]:
    ids = {"traceId": f"{number:032x}", "spanId": f"{number:016x}"}
    return {**ids, "timeUnixNano": str(START), "eventName": name, "body": value(body), "attributes": []}


def protobuf(body: dict[str, Any], kind: Any = ExportTraceServiceRequest) -> bytes:
    """The same export in protobuf, where ids are bytes."""
    export = Parse(json.dumps(body), kind())
    rows = [
        entry
        for resource in (export.resource_spans if kind is ExportTraceServiceRequest else export.resource_logs)
        for scope in (resource.scope_spans if kind is ExportTraceServiceRequest else resource.scope_logs)
        for entry in (scope.spans if kind is ExportTraceServiceRequest else scope.log_records)
    ]
    for entry in rows:
        for name in ("trace_id", "span_id", "parent_span_id"):
            if getattr(entry, name, b""):
                setattr(entry, name, bytes.fromhex(_letters(getattr(entry, name))))
    return bytes(export.SerializeToString())


def _letters(read_as_base64: bytes) -> str:
    return base64.b64encode(read_as_base64).decode()


@pytest.fixture(scope="module")
def http(live: Any) -> Any:
    with live.http() as client:
        yield client


def lines(world: Any) -> list[dict[str, Any]]:
    return [line for line in world.log() if line["kind"] == "otlp"]


def posted(http: httpx.Client, world: Any, path: str = TRACES, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The answer, and the lines that the export became."""
    before = len(lines(world))
    answer = http.post(path, **options)
    return answer, lines(world)[before:]


def test_a_span_is_on_disk_with_hexadecimal_ids_in_either_encoding(http: httpx.Client, live: Any) -> None:
    body = export(span(1), service="shop")
    for options in (
        {"json": body},
        {"content": protobuf(body), "headers": {"content-type": PROTOBUF}},
        {"content": gzip.compress(protobuf(body)), "headers": {"content-type": PROTOBUF, "content-encoding": "gzip"}},
        {
            "content": gzip.compress(json.dumps(body).encode()),
            "headers": {"content-type": f"{JSON}; charset=utf-8", "content-encoding": "gzip"},
        },
    ):
        answer, (line,) = posted(http, live.world, **options)
        assert answer.status_code == 200
        kind = dict(options).get("headers", {"content-type": JSON})["content-type"].split(";")[0]
        assert answer.headers["content-type"] == kind and answer.content == (b"{}" if kind == JSON else b"")
        assert (line["v"], line["task"]) == (1, TASK) and "answered" not in line
        (resource,) = line["body"]["resourceSpans"]
        assert resource["resource"] == {"attributes": pairs({"service.name": "shop"})}
        (held,) = resource["scopeSpans"][0]["spans"]
        assert held == span(1)


def test_each_span_is_a_line_and_what_tells_of_no_call_is_not_written(http: httpx.Client, live: Any) -> None:
    other = {**span(3), "name": "GET /", "attributes": pairs({"http.route": "/", "user.id": "u"})}
    tool = {**span(4), "attributes": pairs({"gen_ai.operation.name": "execute_tool"})}
    answer, found = posted(http, live.world, json=export(span(1), other, tool, span(2)))
    assert answer.json() == {}
    ids = [line["body"]["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["spanId"] for line in found]
    assert ids == [f"{number:016x}" for number in (1, 2)]


def test_log_records_of_a_span_share_a_line(http: httpx.Client, live: Any) -> None:
    body = log_export(
        event(1, "gen_ai.user.message", {"content": "one"}),
        event(2, "gen_ai.user.message", {"content": "two"}),
        event(1, "gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": "1"}}),
        event(2, "gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": "2"}}),
        event(3, "shop.opened", {"content": "no call"}),
    )
    raw = {"content": protobuf(body, ExportLogsServiceRequest), "headers": {"content-type": PROTOBUF}}
    for options in ({"json": body}, raw):
        answer, found = posted(http, live.world, LOGS, **options)
        assert answer.status_code == 200
        groups = [line["body"]["resourceLogs"][0]["scopeLogs"][0]["logRecords"] for line in found]
        assert [[record["spanId"] for record in group] for group in groups] == [[f"{n:016x}"] * 2 for n in (1, 2)]


def test_a_prompt_waits_for_its_answer_that_comes_in_a_later_export(world: Any, start_gateway: Any) -> None:
    prompt = [
        event(1, "gen_ai.system.message", {"content": "Be brief."}),
        event(1, "gen_ai.user.message", {"content": "1?"}),
    ]
    later = {**event(1, "gen_ai.user.message", {"content": "2?"}), "timeUnixNano": str(START + 1)}
    reply = event(1, "gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": "1!"}})
    stray = event(2, "gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": "2!"}})
    with start_gateway(world).http() as http:
        for sent in (prompt, prompt, [later], [reply, stray], [reply]):  # twice is as often as a retry makes it
            assert http.post(LOGS, json=log_export(*sent)).json() == {}
        counted = http.get("/metrics").text
    assert 'flywheel_otlp_records_total{outcome="held",signal="logs",task="(unknown)"} 5.0' in counted
    (report,) = run_intake(world.config, world.home, world.registry, TASK).sources
    assert (report.read, report.kept, report.duplicate, report.quarantined) == (3, 1, 1, 1)
    (row,) = read_rows(world.home, world.registry, "interactions", TASK, "interaction_id")
    said = [message["content"] for message in json.loads(row["request"])["messages"]]
    assert said == ["Be brief.", "1?", "2?"] and json.loads(row["response"])["message"]["content"] == "1!"


def test_prompts_that_wait_are_forgotten_when_they_are_old_or_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(prompts: Prompts, number: int, text: str = "hi") -> int:
        body = log_export(event(number, "gen_ai.user.message", {"content": text}))
        (span,) = spans(body)
        prompts.complete(span, body, len(text))
        return len(span.events)

    prompts = Prompts()
    assert [ask(prompts, 1, "a"), ask(prompts, 1, "b"), ask(prompts, 2)] == [1, 2, 1]
    monkeypatch.setattr("flywheel.gateway.otlp_prompts.MOST_BYTES", 3)
    assert ask(prompts, 3, "long") == 1 and ask(prompts, 2) == 1 and ask(prompts, 1, "c") == 1
    monkeypatch.setattr("flywheel.gateway.otlp_prompts.MOST_BYTES", 100)
    assert ask(prompts, 1, "d") == 2
    monkeypatch.setattr("flywheel.gateway.otlp_prompts.LONGEST_S", -1.0)
    assert ask(prompts, 1, "e") == 1


def test_the_task_is_that_of_the_path_else_the_one_that_the_span_names(http: httpx.Client, live: Any) -> None:
    for body, task in (
        (export(span(1, gen_ai__request__model=OTHER)), OTHER),
        (export(span(1), service=OTHER), OTHER),
        (export(span(1, gen_ai__prompt__name=TASK), service="shop"), TASK),
        (export(span(1, gen_ai__agent__name=TASK), service=OTHER), TASK),
    ):
        _, (line,) = posted(http, live.world, "/v1/traces", json=body)
        assert line["task"] == task
    _, (line,) = posted(http, live.world, json=export(span(1, gen_ai__request__model=OTHER)))
    assert line["task"] == TASK, "the path was chosen on purpose"


def test_an_answer_of_this_gateway_is_of_the_task_that_gave_it(http: httpx.Client, live: Any) -> None:
    ask = {"model": OTHER, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    own = http.post("/v1/chat/completions", json=ask).json()["id"]
    for path in ("/v1/traces", TRACES):
        _, (line,) = posted(http, live.world, path, json=export(span(1, own)))
        assert (line["task"], line["answered"]) == (OTHER, True)
    ask["model"] = "tiny"
    own = http.post("/v1/chat/completions", json=ask).json()["id"]
    _, (line,) = posted(http, live.world, json=export(span(1, own)))
    assert line["task"] == TASK and "answered" not in line, "the base model's answers are in no task's log"


def test_what_names_no_task_among_several_is_refused_in_part(http: httpx.Client, live: Any) -> None:
    answer, found = posted(http, live.world, "/v1/traces", json=export(span(1), span(2, gen_ai__request__model=TASK)))
    assert answer.status_code == 200 and len(found) == 1
    partial = answer.json()["partialSuccess"]
    assert partial["rejectedSpans"] == "1" and "/otlp/<task>" in partial["errorMessage"]
    said = event(1, "gen_ai.evaluation.result", "")
    said["attributes"] = pairs({"gen_ai.evaluation.name": "thumb", "gen_ai.evaluation.score.value": 1})
    raw = {"content": protobuf(log_export(said), ExportLogsServiceRequest), "headers": {"content-type": PROTOBUF}}
    answer, found = posted(http, live.world, "/v1/logs", **raw)
    assert not found and ExportLogsServiceResponse.FromString(answer.content).partial_success.rejected_log_records == 1


def test_a_span_that_no_line_can_hold_does_not_cost_its_neighbours(
    http: httpx.Client, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep: Any = "x"
    for _ in range(15):
        deep = {"k": deep}
    monkeypatch.setattr("flywheel.gateway.otlp_lines.MAX_LINE", 2**20)
    bad = [span(1, deep=deep), span(2, said="\x01" * 300_000), {**span(3), "traceId": "ab" * 600}]
    raw = {"content": protobuf(export(*bad, span(4))), "headers": {"content-type": PROTOBUF}}
    answer, (line,) = posted(http, live.world, **raw)
    assert "0000000000000004" in json.dumps(line)
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_spans == 3
    for reason in ("1 refused: nested deeper", "1 refused: longer than", "1 refused: an id is too long"):
        assert reason in partial.error_message
    long = event(1, "gen_ai.user.message", {"content": "\x01" * 300_000})
    reply = event(1, "gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": "short"}})
    assert http.post(LOGS, json=log_export(long)).json() == {}
    answer, found = posted(http, live.world, LOGS, json=log_export(reply))
    assert answer.json()["partialSuccess"]["rejectedLogRecords"] == "1" and not found


@pytest.mark.parametrize(
    ("path", "headers", "body", "status", "code", "says"),
    [
        (TRACES, {"content-type": PROTOBUF}, b"\xff\xff", 400, 3, "ExportTraceServiceRequest"),
        (TRACES, {"content-type": JSON}, b'{"resourceSpans": 5}', 400, 3, "OTLP/JSON"),
        (TRACES, {"content-type": JSON}, b'{"resourceSpans": [5]}', 400, 3, "OTLP/JSON"),
        (TRACES, {"content-type": JSON}, b'{"resourceSpans": [{"scopeSpans": {}}]}', 400, 3, "OTLP/JSON"),
        (TRACES, {"content-type": JSON}, b'{"resourceSpans"', 400, 3, "not valid JSON"),
        (TRACES, {"content-type": JSON}, b"[]", 400, 3, "JSON object"),
        (TRACES, {"content-type": JSON, "content-encoding": "gzip"}, b"{}", 400, 3, "not gzip"),
        (TRACES, {"content-type": JSON, "content-encoding": "gzip"}, gzip.compress(b"{}")[:-9], 400, 3, "gzip stream"),
        (TRACES, {"content-type": JSON, "content-encoding": "br"}, b"{}", 415, 3, "gzip"),
        (TRACES, {"content-type": "text/plain"}, b"{}", 415, 3, PROTOBUF),
        (TRACES, {}, b"{}", 415, 3, PROTOBUF),
        ("/otlp/nobody/v1/traces", {"content-type": PROTOBUF}, b"", 404, 5, TASK),
        ("/v1/metrics", {"content-type": PROTOBUF}, b"", 404, 5, "OTEL_METRICS_EXPORTER"),
        (f"/otlp/{TASK}/v1/metrics", {"content-type": JSON}, b"{}", 404, 5, "OTEL_METRICS_EXPORTER"),
    ],
)
def test_what_is_wrong_is_said_in_a_status_of_the_requests_encoding(
    http: httpx.Client, live: Any, path: str, headers: dict[str, str], body: bytes, status: int, code: int, says: str
) -> None:
    answer, found = posted(http, live.world, path, content=body, headers=headers)
    assert (answer.status_code, found) == (status, [])
    assert says in answer.text
    if headers.get("content-type") == PROTOBUF:
        told = Status.FromString(answer.content)
        assert answer.headers["content-type"] == PROTOBUF and (told.code, says in told.message) == (code, True)
    else:
        assert answer.json()["code"] == code and says in answer.json()["message"]


def test_an_export_that_is_too_large_is_refused_packed_or_not(http: httpx.Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(otlp, "MAX_EXPORT_BYTES", 100_000)
    body = json.dumps(export(span(1, said="x" * 200_000))).encode()
    headers = {"content-type": JSON}
    assert http.post(TRACES, content=body, headers=headers).status_code == 413
    assert http.post(TRACES, content=iter([body]), headers=headers).status_code == 413
    packed = http.post(TRACES, content=gzip.compress(body), headers={**headers, "content-encoding": "gzip"})
    assert packed.status_code == 413 and packed.json()["code"] == 3


def test_an_export_above_the_limit_of_other_bodies_is_taken(http: httpx.Client, live: Any) -> None:
    body = export(*(span(number, said="x" * 100_000) for number in range(1, 61)))
    raw = {"content": gzip.compress(protobuf(body)), "headers": {"content-type": PROTOBUF, "content-encoding": "gzip"}}
    answer, found = posted(http, live.world, **raw)
    assert answer.status_code == 200 and len(found) == 60


def test_a_disk_that_refuses_is_told_so_that_the_exporter_comes_again(
    http: httpx.Client, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_wal: Any, _record: Any) -> Future[None]:
        future: Future[None] = Future()
        future.set_exception(StoreError("no space"))
        return future

    with monkeypatch.context() as patch:
        patch.setattr(WriteAheadLog, "append", refuse)
        answer = http.post(TRACES, json=export(span(1), span(2)))
    assert answer.status_code == 503 and answer.json()["code"] == 14 and answer.headers["retry-after"] == "1"
    with monkeypatch.context() as patch:
        patch.setattr(WriteAheadLog, "failing", lambda _wal: True)
        assert http.post(TRACES, json=export(span(1))).status_code == 503
    with monkeypatch.context() as patch:
        patch.setattr(otlp, "MAX_EXPORTS", 0)
        answer = http.post(TRACES, json=export(span(1)))
    assert answer.status_code == 429 and answer.json()["code"] == 8 and answer.headers["retry-after"] == "1"
    assert http.post(TRACES, json=export(span(1))).status_code == 200


def test_only_a_key_that_may_ingest_is_let_in(world: Any, start_gateway: Any) -> None:
    key = {scope: create_key(world.registry, scope, [scope]) for scope in ("ingest", "feedback", "operate")}
    gateway = start_gateway(world)
    for holder, status, code in ((None, 401, 16), ("feedback", 403, 7), ("ingest", 200, None), ("operate", 200, None)):
        with gateway.http(key[holder] if holder else None) as http:
            answer = http.post(TRACES, json=export(span(1)))
            assert (answer.status_code, answer.json().get("code")) == (status, code), holder


def test_metrics_count_what_became_of_spans(world: Any, start_gateway: Any) -> None:
    with start_gateway(world).http() as http:
        other = {**span(3), "attributes": []}
        http.post("/v1/traces", json=export(span(1), span(2, gen_ai__request__model=TASK), other))
        http.post("/v1/logs", content=b"", headers={"content-type": "text/plain"})
        text = http.get("/metrics").text
    for outcome, task in (("written", TASK), ("refused", "(unknown)"), ("passed over", "(unknown)")):
        assert f'flywheel_otlp_records_total{{outcome="{outcome}",signal="traces",task="{task}"}} 1.0' in text
    assert 'flywheel_otlp_exports_total{signal="traces",status="200"} 1.0' in text
    assert 'flywheel_otlp_exports_total{signal="logs",status="415"} 1.0' in text


def test_refusals_quote_nothing(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    word = "MARKERTEXT"
    for body in (
        {"resourceSpans": word},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": word, "name": [word]}]}]}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": word}]}]}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": "k", "value": {"intValue": word}}]}]}]}]},
    ):
        answer = http.post(TRACES, json=body)
        assert answer.status_code == 400 and word not in answer.text
    answer = http.post(TRACES, json=export({**span(1), "traceId": word * 100}))
    assert answer.status_code == 200 and "partialSuccess" in answer.json() and word not in answer.text
    answer = http.post(f"/otlp/{word}/v1/traces", json={})
    assert answer.status_code == 404 and word not in answer.text
    assert word not in "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("flywheel"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["resourceSpans", "scopeSpans", "spans", "attributes", "key", "value", "name", "traceId", "status", "events",
         "kvlistValue", "arrayValue", "values", "stringValue", "intValue", "bytesValue", "startTimeUnixNano", "x"]
    ), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(body=st.one_of(st.binary(max_size=60), json_values, json_values.map(lambda held: {"resourceSpans": [held]})))
def test_no_body_is_more_than_the_receiver_can_answer(http: httpx.Client, body: Any) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    for kind in (JSON, PROTOBUF):
        answer = http.post(TRACES, content=raw, headers={"content-type": kind})
        assert answer.status_code in (200, 400)


def test_intake_takes_each_span_once_into_its_task_only(world: Any, start_gateway: Any) -> None:
    broken = span(3, gen_ai__output__messages="[{")
    bare = span(4, gen_ai__input__messages="", gen_ai__output__messages="")
    bare["attributes"] = [pair for pair in bare["attributes"] if not pair["key"].endswith(".messages")]
    with start_gateway(world).http() as http:
        for _ in range(2):  # an exporter that did not get our answer sends it all again
            assert http.post(TRACES, json=export(span(1), span(2), broken, bare)).status_code == 200
        http.post(f"/otlp/{OTHER}/v1/traces", json=export(span(5)))
    (report,) = run_intake(world.config, world.home, world.registry, TASK).sources
    counts = (report.read, report.kept, report.duplicate, report.quarantined, report.skipped)
    assert counts == (9, 2, 2, 2, 3)
    assert report.reasons["recorded without its content"] == 2 and report.reasons["other task"] == 1
    rows = read_rows(world.home, world.registry, "interactions", TASK, "interaction_id")
    assert [row["interaction_id"] for row in rows] == ["resp-1", "resp-2"]
    assert json.loads(rows[0]["metadata"])["otel_trace_id"] == f"{1:032x}"
    (report,) = run_intake(world.config, world.home, world.registry, OTHER).sources
    assert (report.kept, report.skipped) == (1, 8)


def test_a_call_that_the_gateway_logged_itself_stays_the_gateways_whatever_the_span_says(
    world: Any, start_gateway: Any
) -> None:
    ask = {"model": TASK, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "user": "u1"}
    with start_gateway(world).http() as http:
        own = http.post("/v1/chat/completions", json=ask).json()["id"]
        said = {"name": "gen_ai.evaluation.result", "timeUnixNano": str(START)}
        said["attributes"] = pairs({"gen_ai.evaluation.name": "thumb", "gen_ai.evaluation.score.value": 1})
        http.post(TRACES, json=export({**span(1, own, said="as the span tells it"), "events": [said]}))
        # Ids that no answer of ours had, told twice with different content, are still a fault of whoever made them.
        http.post(TRACES, json=export(span(2, "same"), span(3, "same")))
    (report,) = run_intake(world.config, world.home, world.registry, TASK).sources
    assert (report.read, report.kept, report.duplicate, report.quarantined) == (4, 3, 0, 1)
    assert report.reasons == {"same id as another record, other content": 1}
    rows = read_rows(world.home, world.registry, "interactions", TASK, "interaction_id")
    assert [row["interaction_id"] for row in rows] == [own, "same"] and "as the span" not in str(rows)
    (verdict,) = read_rows(world.home, world.registry, "feedback", TASK, "feedback_id")
    assert (verdict["target_kind"], verdict["target_id"], verdict["kind"]) == ("interaction", own, "thumb")
