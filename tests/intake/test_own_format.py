"""A format of the operator's own is one file, and it is run because flywheel.yaml names it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flywheel.errors import IntakeError
from flywheel.intake import import_path, run_intake
from flywheel.intake.formats import FORMATS, custom
from flywheel.store.segments import read_rows

DOCS = Path(__file__).parents[2] / "docs" / "bring_your_logs.md"


@pytest.fixture(autouse=True)
def formats_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(FORMATS)
    monkeypatch.setattr(custom, "_loaded", set())
    yield
    FORMATS.clear()
    FORMATS.update(before)


def example() -> str:
    """The format that the docs show."""
    return DOCS.read_text().partition("## A format of your own")[2].partition("```python\n")[2].partition("```")[0]


def test_the_example_in_the_docs_reads_what_it_says(make_deployment: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "my_format.py").write_text(example())
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"asked": "hi", "said": "hello", "at": 1764500000, "key": "k1"}) + "\n")
    it = make_deployment("d", formats=["my_format.py"], task={"logs": [str(log)]})
    report = run_intake(it.config, it.home, it.registry, it.task).sources[-1]
    assert (report.kept, report.reasons) == (1, {})
    (row,) = read_rows(it.home, it.registry, "interactions", it.task, "interaction_id")
    assert row["interaction_id"] == "k1"
    assert json.loads(row["response"])["message"]["content"] == "hello"


def test_a_format_of_ones_own_is_asked_before_the_others_and_may_be_named(
    make_deployment: Callable[..., Any], tmp_path: Path
) -> None:
    mine = tmp_path / "greedy.py"
    mine.write_text(
        "from flywheel.intake.formats import log_format\n"
        "from flywheel.intake.records import SkippedRecord\n"
        "@log_format('greedy', lambda record: 'messages' in record)\n"
        "def parse(record, context):\n"
        "    raise SkippedRecord('mine')\n"
    )
    log = tmp_path / "log.jsonl"
    log.write_text('{"messages": []}\n{}\n')
    it = make_deployment(formats=[str(mine)])
    found = import_path(it.config, it.home, it.registry, it.task, log)
    assert found.reasons == {"mine": 1, "no known log format": 1}
    log.write_text('{"messages": [1]}\n{}\n')
    named = import_path(it.config, it.home, it.registry, it.task, log, fmt="greedy")
    assert named.reasons["mine"] == 1 == named.reasons["not a record of the format greedy"]


def test_a_file_that_nobody_names_is_not_run(make_deployment: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "my_format.py").write_text("raise SystemExit('run')")
    it = make_deployment("d", task={"logs": [str(tmp_path / "d")]})
    assert run_intake(it.config, it.home, it.registry, it.task).sources[-1].read == 0


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, "no such file"),
        ("x = 1\n", "registers no format"),
        ("raise ValueError('a secret')\n", r"fails: ValueError at .*own\.py:1"),
        ("def (\n", "fails: SyntaxError"),
        ("from flywheel.intake.formats import log_format\nlog_format('otel', bool)(None)\n", "'otel' is taken"),
        ("from flywheel.intake.formats import log_format\nlog_format('auto', bool)(None)\n", "'auto' is taken"),
    ],
)
def test_a_file_that_is_no_format_is_refused_and_leaves_nothing_behind(
    make_deployment: Callable[..., Any], tmp_path: Path, code: str | None, message: str
) -> None:
    path = tmp_path / "own.py"
    if code is not None:
        path.write_text(code)
    before = dict(FORMATS)
    it = make_deployment(formats=[str(path)])
    for _ in range(2):
        with pytest.raises(IntakeError, match=message) as error:
            run_intake(it.config, it.home, it.registry, it.task)
        assert "secret" not in str(error.value)
    assert before == FORMATS
