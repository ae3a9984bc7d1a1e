"""Spans in the gateway's log: an erasure takes those of the person, and what others say about them, and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flywheel.intake import run_intake
from flywheel.store.segments import read_rows

ADA, BOB = "ada@example.org", "bob@example.org"
WORD = "quokka"


def attributes(held: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in held.items()]


def talk(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def line(number: int, span: dict[str, Any], task: str = "support_router", **fields: Any) -> dict[str, Any]:
    """A line of the log with a span in it."""
    ids = {"traceId": f"trace-{number}", "spanId": f"span-{number}", "startTimeUnixNano": "1740830400000000000"}
    body = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [{"name": "", **ids, **span}]}]}]}
    return {"v": 1, "kind": "otlp", "id": f"otlp-{number}", "task": task, "ts": "2025-03-01", "body": body, **fields}


def call(number: int, user: str = "", text: str = WORD, **held: Any) -> dict[str, Any]:
    """A line with a model call."""
    own = {"gen_ai.operation.name": "chat", "gen_ai.response.id": f"resp-{number}"}
    said = {"gen_ai.input.messages": talk("user", text), "gen_ai.output.messages": talk("assistant", f"of {text}")}
    held = {key.replace("__", "."): value for key, value in held.items()}
    return line(number, {"attributes": attributes({**own, **said, **({"user.id": user} if user else {}), **held})})


def verdict(number: int, text: str = WORD, ids: dict[str, str] | None = None, **held: Any) -> dict[str, Any]:
    """A line with an evaluation in a span of its own."""
    own = {"gen_ai.evaluation.name": "judge", "gen_ai.evaluation.score.label": "pass"}
    held = {key.replace("__", "."): value for key, value in held.items()}
    said = attributes({**own, "gen_ai.evaluation.explanation": text, **held})
    return line(number, {"name": "gen_ai.evaluation.result", "attributes": said, **(ids or {})})


def left(traffic: Any, path: Any) -> list[str]:
    """Ids of the lines that are not blank."""
    return [record["id"] for record in map(json.loads, path.read_bytes().splitlines()) if record["kind"] != "erased"]


@pytest.mark.parametrize("read", [False, True])
def test_a_persons_spans_go_and_those_of_others_beside_them_stay(
    deployment: Any, traffic: Any, erased: Any, search: Any, read: bool
) -> None:
    broken = call(6, ADA, gen_ai__output__messages="[{")
    path = traffic.write(
        call(1, ADA),
        call(2, BOB, "plain"),
        call(3, gen_ai__conversation__id="talk"),  # what they said in a conversation, though not under their name
        call(4, ADA, gen_ai__conversation__id="talk"),
        verdict(5, gen_ai__response__id="resp-1"),
        broken,
        verdict(7, ids={"parentSpanId": "span-4"}),
        verdict(8, ids={"traceId": "trace-4"}),
        verdict(9, "plain", gen_ai__response__id="resp-2"),
        call(10, BOB, "plain") | {"task": "writer"},
        call(11, ADA) | {"task": "writer"},
        {**call(12, text="plain"), "body": {"resourceSpans": [ADA]}},
    )
    size = path.stat().st_size
    if read:
        run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)
    assert erased(deployment, ADA).counts["log_lines"] == 9
    assert left(traffic, path) == ["otlp-2", "otlp-9", "otlp-10"] and path.stat().st_size == size
    assert search(deployment.home, WORD, ADA) == []
    (report,) = run_intake(deployment.config, deployment.home, deployment.registry, deployment.task).sources
    assert (report.kept, report.skipped) == ((0, 0) if read else (2, 10))
    rows = read_rows(deployment.home, deployment.registry, "interactions", deployment.task, "interaction_id")
    assert [row["interaction_id"] for row in rows] == ["resp-2"]


def test_the_span_of_a_call_that_the_gateway_logged_goes_with_it(
    deployment: Any, traffic: Any, erased: Any, search: Any
) -> None:
    own = traffic.call(1, user=ADA, text=WORD)
    path = traffic.write(own, call(2, gen_ai__response__id=own["id"]), call(3, BOB, "plain"))
    assert erased(deployment, ADA).counts["log_lines"] == 2
    assert left(traffic, path) == ["otlp-3"] and search(deployment.home, WORD) == []


def test_calls_of_others_in_a_trace_stay_where_they_are_a_conversation_of_their_own(
    deployment: Any, traffic: Any, erased: Any
) -> None:
    together = {"traceId": "batch"}
    people = ((1, ADA), (2, BOB), (3, ""))
    mine, other, nobodys = (call(n, user, gen_ai__conversation__id=f"c{n}") for n, user in people)
    for record in (mine, other, nobodys):
        record["body"]["resourceSpans"][0]["scopeSpans"][0]["spans"][0] |= together
    path = traffic.write(mine, other, nobodys, verdict(4, ids=together))
    erased(deployment, ADA)
    assert left(traffic, path) == ["otlp-2", "otlp-3"]


def test_spans_that_come_after_an_erasure_are_not_taken_in(deployment: Any, traffic: Any, erased: Any) -> None:
    erased(deployment, ADA)
    traffic.write(call(1, ADA), call(2, BOB), line(3, {"attributes": [], "name": ADA}))
    (report,) = run_intake(deployment.config, deployment.home, deployment.registry, deployment.task).sources
    assert (report.kept, report.skipped) == (1, 2) and report.reasons["erased user"] == 1
