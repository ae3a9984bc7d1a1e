"""What an import shows before it imports: the format and why, some records as they will be stored, nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.intake import run_intake
from flywheel.intake.formats import FORMATS
from flywheel.intake.preview import WIDTH, examine, preview
from flywheel.intake.run import import_source
from flywheel.store.registry import schema


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """``file(record, ...)`` -> a file of these records; bytes as they are."""

    def write(*records: Any) -> Path:
        path = tmp_path / "import.jsonl"
        path.write_bytes(b"".join(r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in records))
        return path

    return write


def look(at: Any, path: Path, fmt: str = "auto") -> Any:
    return preview(at.config, at.home, at.registry, at.task, import_source(at.config, path, fmt))


def test_a_call_is_shown_as_it_will_be_stored_with_the_key_of_its_user(
    deployment: Any, traffic: Any, file: Any
) -> None:
    call = traffic.call(1, "billing", text="  where is\n my order? ", user="ann@example.com", conversation_id="talk")
    (shown,) = look(deployment, file(call)).records
    assert shown == {
        "record": "call",
        "id": traffic.call_id(1),
        "time": traffic.time(1),
        "time_quality": "ok",
        "user_key": deployment.home.user_key("ann@example.com")[:12],
        "conversation": "talk",
        "model": "a" * 64,
        "asked": "where is my order?",
        "answered": "billing",
    }


def test_feedback_is_shown_with_its_kind_value_and_target(deployment: Any, traffic: Any, file: Any) -> None:
    (shown,) = look(deployment, file(traffic.feedback(1, "thumb", value="up", author="ann"))).records
    assert (shown["kind"], shown["value"], shown["about"]) == ("thumb", True, f"the call {traffic.call_id(1)}")
    assert "ann" not in json.dumps(shown)


def test_long_texts_are_cut_and_what_is_no_text_is_named(deployment: Any, traffic: Any, file: Any) -> None:
    parts = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "what is this?"}]
    tools = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look_up", "arguments": "{}"}}]}
    seen = traffic.call(1, request={"messages": [{"role": "user", "content": parts}]}, choices=[{"message": tools}])
    long, short = look(deployment, file(traffic.call(2, text="word " * 100), seen)).records
    assert len(long["asked"]) == WIDTH and long["asked"].endswith("word\N{HORIZONTAL ELLIPSIS}")
    assert (short["asked"], short["answered"]) == ("[image_url] what is this?", "[calls look_up]")


def test_the_format_is_named_with_the_keys_that_decided(deployment: Any, traffic: Any, file: Any) -> None:
    langfuse = {"id": "s1", "trace_id": "t", "name": "helpful", "value": 1, "data_type": "BOOLEAN", "source": "API"}
    path = file(traffic.call(1), traffic.call(2), langfuse, b"\n", b"broken\n")
    found = look(deployment, path)
    assert found.looked_at == 4, "a blank line is no record"
    assert [(told["format"], told["records"]) for told in found.formats] == [("gateway", 2), ("langfuse", 1)]
    assert found.formats[0]["why"] == f"because its records have {FORMATS['gateway'].keys}"
    assert "`data_type`" in found.formats[1]["why"]
    assert found.unusable == {"not JSON": 1}
    named = look(deployment, path, "langfuse").formats
    assert [told["why"] for told in named] == ["because it was named"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_says_what_it_is_detected_by(name: str) -> None:
    assert "`" in FORMATS[name].keys


def test_three_records_are_shown_at_most_and_nothing_is_stored(deployment: Any, traffic: Any, file: Any) -> None:
    path = file(*(traffic.call(number) for number in range(60)))
    found = look(deployment, path)
    source = import_source(deployment.config, path)
    report = examine(deployment.config, deployment.home, deployment.registry, deployment.task, source)
    assert (len(found.records), found.looked_at) == (3, 50)
    assert (report.read, report.kept) == (60, 60)
    with deployment.registry.read() as tx:
        for table in (schema.sources, schema.segments, schema.intake_counts):
            assert not tx.rows(sa.select(table))


def test_a_dry_run_reads_what_the_import_would_read(deployment: Any, traffic: Any, file: Any) -> None:
    path = file(traffic.call(1), traffic.call(1, task="other"), b"broken\n", b'{"torn')
    source = import_source(deployment.config, path)
    report = examine(deployment.config, deployment.home, deployment.registry, deployment.task, source)
    assert (report.read, report.kept, report.quarantined, report.skipped) == (4, 1, 2, 1)
    assert report.reasons == {"other task": 1, "not JSON": 1, "torn last line": 1}


def test_an_erased_users_words_are_not_shown(deployment: Any, traffic: Any, file: Any, traffic_of: Any) -> None:
    from flywheel.erasure import erase

    traffic.write(traffic.call(1, user="ann"))
    run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)
    erase(deployment.config, deployment.home, deployment.registry, "ann")
    (shown,) = look(deployment, file(traffic.call(2, text="a secret", user="ann"))).records
    assert shown["skipped"] == "erased user" and "secret" not in json.dumps(shown)
