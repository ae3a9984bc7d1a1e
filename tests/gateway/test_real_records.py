"""Records that the real libraries make of calls to a gateway, taken in: LiteLLM, OpenTelemetry, Langfuse, OpenAI.

Each library runs in a process of its own, since it patches others. They are the extra ``trials`` of pyproject.toml.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flywheel.gateway.keys import create_key
from flywheel.intake import SourceReport, import_path, run_intake
from flywheel.store.segments import read_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLIENTS = Path(__file__).parent / "clients"
TASK = "support_router"
MODES = {
    "v2": {
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only",
    },
    "openllmetry": {},
}


def run(script: str, *arguments: str, **environment: str) -> Any:
    """What a client prints."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "LANGFUSE_"))}
    offline = {
        "OPENAI_API_KEY": "unused",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OTEL_METRICS_EXPORTER": "none",
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, str(CLIENTS / script), *arguments],
        env={**kept, **offline, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.lstrip()[:1] == "[" else done.stdout


def taken(world: Any) -> SourceReport:
    (report,) = run_intake(world.config, world.home, world.registry, TASK).sources
    return report


def content(world: Any, *, ids: bool = True) -> list[Any]:
    """What the stored interactions say: id, messages, the answer and its end, sorted."""
    rows = read_rows(world.home, world.registry, "interactions", TASK, "interaction_id")
    found = []
    for row in rows:
        response = json.loads(row["response"])
        said = (json.loads(row["request"])["messages"], response["message"], response["finish_reason"])
        found.append([row["interaction_id"] if ids else "", *said])
    return sorted(found, key=json.dumps)


@pytest.fixture
def both(make_world: Any, start_gateway: Any) -> tuple[Any, Any]:
    """A gateway that answers, and another one that only receives telemetry."""
    return start_gateway(make_world()), start_gateway(make_world())


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("mode", sorted(MODES))
def test_spans_of_the_instrumented_sdk_hold_what_the_gateway_logged(both: Any, mode: str, compression: str) -> None:
    answering, receiving = both
    endpoint = f"{receiving.url}/otlp/{TASK}"
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_COMPRESSION": compression}
    said = run("otel_calls.py", mode, answering.url, **environment, **MODES[mode])
    own, told = taken(answering.world), taken(receiving.world)
    assert (own.read, own.kept) == (3, 3)
    assert (told.read, told.kept) == (3, 3), told.reasons
    assert content(receiving.world) == content(answering.world) and len(content(receiving.world)) == 4
    assert {row[0]: row[2]["content"] for row in content(receiving.world)}.items() >= dict(said).items()
    rows = read_rows(receiving.world.home, receiving.world.registry, "interactions", TASK, "ts")
    assert {row["release"].split("@")[0] for row in rows} == {row["model_requested"] for row in rows} == {TASK}
    assert json.loads(rows[0]["usage"])["completion_tokens"] > 0 and rows[0]["latency_ms"] > 0
    if mode == "openllmetry":  # the other one leaves the user out
        assert {row["user_key"] for row in rows} == {receiving.world.home.user_key("u1")}


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_call_that_the_gateway_logged_and_a_span_tells_is_one_interaction(
    world: Any, start_gateway: Any, mode: str
) -> None:
    key = create_key(world.registry, "shop", ["infer", "ingest"])
    gateway = start_gateway(world)
    environment = {"OPENAI_API_KEY": key, "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer%20{key}"}
    run("otel_calls.py", mode, gateway.url, OTEL_EXPORTER_OTLP_ENDPOINT=gateway.url, **environment, **MODES[mode])
    report = taken(world)
    assert (report.read, report.kept, report.duplicate, report.quarantined) == (6, 3, 3, 0), report.reasons
    rows = read_rows(world.home, world.registry, "interactions", TASK, "interaction_id")
    assert len(rows) == 4 and {row["user_key"] for row in rows} == {world.home.user_key("u1")}
    assert {row["release"] for row in rows} == {world.champion().release}, "the gateway's own record stands"


def test_log_events_of_the_older_conventions_hold_the_content(both: Any) -> None:
    answering, receiving = both
    endpoint = f"{receiving.url}/otlp/{TASK}"
    capture = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    run("otel_calls.py", "v2", answering.url, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, **capture)
    taken(answering.world)
    report = taken(receiving.world)
    assert (report.read, report.kept, report.skipped) == (6, 3, 3)
    assert report.reasons["recorded without its content"] == 3, "the spans, whose content lies in their log events"
    assert content(receiving.world, ids=False) == content(answering.world, ids=False)


def test_content_in_one_event_per_call_is_the_same(both: Any) -> None:
    answering, receiving = both
    environment = {**MODES["v2"], "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "event_only"}
    endpoint = f"{receiving.url}/otlp/{TASK}"
    run("otel_calls.py", "v2", answering.url, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, **environment)
    taken(answering.world)
    assert taken(receiving.world).kept == 3
    assert content(receiving.world) == content(answering.world)


def test_spans_of_langfuses_sdk_hold_what_the_gateway_logged(both: Any) -> None:
    answering, receiving = both
    endpoint = f"{receiving.url}/otlp/{TASK}"
    said = run("langfuse_calls.py", answering.url, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    taken(answering.world)
    report = taken(receiving.world)
    assert (report.read, report.kept) == (4, 4), report.reasons
    rows = read_rows(receiving.world.home, receiving.world.registry, "interactions", TASK, "ts")
    assert [json.loads(row["response"])["message"]["content"] for row in rows] == [*said, ""]
    assert [row["status"] for row in rows] == ["ok"] * 3 + ["error"]
    assert {row["conversation_id"] for row in rows} == {"s1"}
    assert {row["user_key"] for row in rows} == {receiving.world.home.user_key("u1")}
    answered = {json.dumps([row[1], row[2]]) for row in content(answering.world)}
    assert answered <= {json.dumps([row[1], row[2]]) for row in content(receiving.world)}
    metadata = [json.loads(row["metadata"]) for row in rows]
    assert all(held["ticket"] == "42" and held["langfuse_tags"] == ["urgent"] for held in metadata)


def test_payloads_of_litellm_hold_what_the_gateway_logged(
    world: Any, start_gateway: Any, make_world: Any, tmp_path: Path
) -> None:
    from flywheel.cli.__main__ import app

    gateway, file = start_gateway(world), tmp_path / "litellm.jsonl"
    run("litellm_calls.py", gateway.url, str(file))
    taken(world)
    other = make_world()
    config = Path(other.home.root).parent / "flywheel.yaml"
    config.write_text(json.dumps({"home": "home", "tasks": {TASK: {"base": "tiny"}}}))
    done = CliRunner().invoke(app, ["intake", "import", str(file), "--task", TASK, "--config", str(config)])
    assert done.exit_code == 0, done.output
    rows = read_rows(other.home, other.registry, "interactions", TASK, "ts")
    assert [row["status"] for row in rows] == ["ok", "ok", "error"]
    assert {row["conversation_id"] for row in rows} == {"c7"}
    assert {row["user_key"] for row in rows} == {other.home.user_key("u1")}
    assert [row["stream"] for row in rows] == [False, True, False]
    told = [row for row in content(other) if row[0].startswith("chatcmpl-")]
    assert told == content(world) and len(told) == 2
    again = import_path(world.config, world.home, world.registry, TASK, file)
    assert (again.kept, again.duplicate, again.quarantined) == (1, 2, 0), "the failed call has no answer to know it by"


def test_stored_completions_of_our_own_api_are_no_second_interactions(
    world: Any, start_gateway: Any, make_world: Any, tmp_path: Path
) -> None:
    gateway, file = start_gateway(world), tmp_path / "completions.jsonl"
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Parcel 42?"}]
    with file.open("w") as out:
        for number in range(3):
            completion = gateway.sdk().chat.completions.create(
                model=TASK, messages=messages, max_tokens=8, store=True, metadata={"number": str(number)}, user="u1"
            )
            stored = [{"id": f"{completion.id}-{place}", **message} for place, message in enumerate(messages)]
            row = {**completion.model_dump(), "metadata": {"number": str(number), "thumb": "up"}, "messages": stored}
            print(json.dumps(row), file=out)
    taken(world)
    again = import_path(world.config, world.home, world.registry, TASK, file)
    assert (again.read, again.kept, again.quarantined) == (3, 3, 0), "the verdicts in the metadata are new"
    feedback = read_rows(world.home, world.registry, "feedback", TASK, "feedback_id")
    assert {row["target_id"] for row in feedback} == {row[0] for row in content(world)} and len(feedback) == 3
    other = make_world()
    assert import_path(other.config, other.home, other.registry, TASK, file).kept == 3
    assert content(other) == content(world) and len(content(world)) == 3
