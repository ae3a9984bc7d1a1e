"""Rule 11 in Dagster: whatever is read, and whatever fails, the event log and the console quote nothing of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from flywheel.errors import DatasetError
from flywheel.store.registry import schema
from flywheel.store.segments import read_rows

TEXT = "MARKERTEXT"
"""What people wrote."""

TAGS = {"flywheel/loop_id": "support_router/1", "flywheel/attempt": "2"}

BROKEN_CHILD = f"""
import sys
import flywheel.training.run as run
from flywheel.training.__main__ import main

def fail(*_):
    raise KeyError("{TEXT}")

run._steps = fail
sys.exit(main())
"""


@pytest.fixture
def quotes_nothing(capfd: pytest.CaptureFixture[str]) -> Callable[[Any, dg.ExecuteInProcessResult], str]:
    """``quotes_nothing(ui, result)``: check the run's events and what it, and its children, wrote to the console."""

    def check(ui: Any, result: dg.ExecuteInProcessResult) -> str:
        events = json.dumps([entry.to_json() for entry in ui.instance.all_logs(result.run_id)])
        console = "".join(capfd.readouterr())
        assert len(events) > 3000 and len(console) > 1000, "there is something to look into"
        assert TEXT not in events and TEXT not in console
        return events

    return check


def test_bad_records_reach_quarantine_and_no_further(
    make_wheel: Any, dagster_of: Any, traffic_of: Any, quotes_nothing: Any, reason: Any
) -> None:
    wheel = make_wheel()
    wheel.set(logs=str(wheel.folder / "foreign.jsonl"))
    traffic = traffic_of(wheel.home)
    call, fact = traffic.call, traffic.feedback
    bad: list[Any] = [
        f'{{"v": 1, "kind": "interaction", "text": "{TEXT}'.encode() + b"\n",
        f'{{"v": 1, "text": "{TEXT}", "x": NaN}}\n'.encode(),
        f'["{TEXT}"]\n'.encode(),
        f'"{TEXT}'.encode() + b'\xff"\n',
        f'{{"a": "{TEXT}", "b": {"[" * 70}{"]" * 70}}}\n'.encode(),
        call(1, kind=TEXT),
        call(2, v=TEXT),
        call(3, id=TEXT * 100),
        call(4, request={"messages": [{"content": TEXT}]}),
        call(5, request={"messages": [TEXT]}),
        call(6, request={"messages": TEXT}),
        call(7, choices=[{"message": TEXT}]),
        call(8, request={"messages": [{"role": "user", "content": 1}], "tools": TEXT}),
        fact(9, TEXT),
        fact(10, "thumb", value=TEXT),
        fact(11, "rating", value=TEXT),
        fact(12, source=TEXT, text=TEXT),
        fact(13, target={"kind": TEXT, "id": TEXT}),
        call(14, TEXT),
        call(14, TEXT + TEXT),  # one id, two contents
    ]
    fine = [
        call(20, TEXT, text=TEXT, ts=TEXT, user=TEXT, conversation_id=TEXT, model=TEXT, metadata={TEXT: TEXT}),
        call(21, task=TEXT),
        fact(20, text=TEXT, author=TEXT, source_id=TEXT),
        fact(20, "comment", text=TEXT, supersedes=TEXT),
        fact(99, text=TEXT),  # waits for its call
    ]
    traffic.write(*bad, *fine, f'{{"torn": "{TEXT}'.encode())
    (wheel.folder / "foreign.jsonl").write_text(f'{{"what": "{TEXT}"}}\n{{"messages": "{TEXT}", "response": 1}}\n')
    ui = dagster_of(wheel)
    result = ui.launch("intake")
    assert result.success, reason(result)
    quotes_nothing(ui, result)
    kept = read_rows(wheel.home, wheel.registry, "quarantine", wheel.task, "source_offset")
    assert sum(TEXT in row["raw"] for row in kept) >= len(bad) - 1, "it was there to be leaked"
    with wheel.registry.read() as tx:
        assert TEXT not in json.dumps(tx.rows(sa.select(schema.intake_counts.c.reasons)))


@pytest.mark.parametrize("caused", [False, True], ids=["unforeseen", "cause of one of ours"])
@pytest.mark.parametrize("stage", ["flywheel.intake.mapping.decode", "flywheel.labels.run.make_label"])
def test_intake_that_fails_over_a_record_does_not_quote_it(
    make_wheel: Any, dagster_of: Any, quotes_nothing: Any, monkeypatch: pytest.MonkeyPatch, stage: str, caused: bool
) -> None:
    wheel = make_wheel()
    wheel.talk(0, 3)
    ui = dagster_of(wheel)
    monkeypatch.setattr(stage, failing(caused))
    result = ui.launch("intake")
    assert not result.success
    assert ("no use" if caused else "ValueError at ") in quotes_nothing(ui, result)


@pytest.mark.parametrize("caused", [False, True], ids=["unforeseen", "cause of one of ours"])
@pytest.mark.parametrize("stage", ["dataset.select_suites", "evaluation.decide", "champion.promote"])
def test_a_stage_that_fails_over_a_row_does_not_quote_it(
    make_wheel: Any,
    judged_folder: Path,
    dagster_of: Any,
    quotes_nothing: Any,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    caused: bool,
) -> None:
    ui = dagster_of(make_wheel(like=judged_folder))
    monkeypatch.setattr(f"flywheel.loops.{stage}", failing(caused))
    result = ui.launch("loop", TAGS)
    assert not result.success
    assert ("no use" if caused else "ValueError at ") in quotes_nothing(ui, result)


def test_a_training_child_that_fails_over_a_row_does_not_quote_it(
    make_wheel: Any, judged_folder: Path, dagster_of: Any, quotes_nothing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(like=judged_folder)
    wheel.set(train=wheel.config.task(wheel.task).train.model_dump() | {"seed": 77})  # so that there is a run to do
    ui = dagster_of(wheel)

    def command(spec: Path) -> list[str]:
        return [sys.executable, "-c", BROKEN_CHILD, "--spec", str(spec)]

    monkeypatch.setattr("assets.children.child_command", command)
    result = ui.launch("loop", TAGS)
    assert not result.success
    assert "error: KeyError at " in quotes_nothing(ui, result)


def failing(caused: bool) -> Callable[..., Any]:
    """A stage's function as it is when a row cannot be handled."""

    def fail(*_args: Any, **_options: Any) -> Any:
        try:
            raise ValueError(f"cannot convert {TEXT}")
        except ValueError as error:
            if caused:
                raise DatasetError("a row is of no use; look into the log") from error
            raise

    return fail
