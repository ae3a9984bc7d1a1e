"""A format that was named wrongly takes nothing, and skips nothing either: what it does not know is quarantined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flywheel.errors import IntakeError
from flywheel.intake import import_path
from flywheel.intake.formats import FORMATS
from flywheel.intake.records import BadRecord, SkippedRecord


@pytest.mark.parametrize("named", sorted(FORMATS))
def test_no_format_skips_the_records_of_another(named: str, call_class: Any, log_fixture: Any) -> None:
    from flywheel.intake.records import Context

    context = Context("support_router", frozenset({"support_router", "writer"}))
    fixtures = Path(__file__).parent / "fixtures"
    records = [json.loads(line) for path in fixtures.glob("*.jsonl") for line in path.read_text().splitlines()]
    tried = 0
    for record in [*records, {"hello": 1}]:
        if FORMATS[named].matches(record):
            continue
        tried += 1
        try:
            FORMATS[named].records(record, context)
        except BadRecord:
            pass
        except SkippedRecord as rule:
            pytest.fail(f"{named} skips what it does not know: {rule}")
    assert tried


def test_a_line_that_its_writer_emptied_is_still_skipped_as_erased(log_fixture: Any) -> None:
    assert log_fixture("langfuse").read({}) == {"quarantined": "not a record of the format langfuse"}
    with pytest.raises(SkippedRecord, match="erased"):
        FORMATS["gateway"].records({}, None)  # type: ignore[arg-type]


def test_a_file_is_refused_only_after_a_long_look_and_the_message_says_why(
    deployment: Any, traffic: Any, tmp_path: Path
) -> None:
    path, junk = tmp_path / "late.jsonl", b'{"boot": 1}\nnoise\n' * 100
    path.write_bytes(junk + json.dumps(traffic.call(1)).encode() + b"\n")
    at = deployment
    assert import_path(at.config, at.home, at.registry, at.task, path).kept == 1
    path = tmp_path / "never.jsonl"
    path.write_bytes(junk)
    with pytest.raises(IntakeError) as refused:
        import_path(at.config, at.home, at.registry, at.task, path)
    told = str(refused.value)
    assert "none of its first 200 records" in told and "--format" in told
    assert "no known log format: 100" in told and "not JSON: 100" in told
