"""`logs` and `formats` in flywheel.yaml: places as texts or with a format, and what is wrong with them said by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flywheel.config import Config, parse_config
from flywheel.errors import ConfigError


def parse(tmp_path: Path, logs: Any, **top_level: Any) -> Config:
    return parse_config({"tasks": {"t": {"base": "b", "logs": logs}}, **top_level}, tmp_path / "flywheel.yaml")


def test_paths_and_globs_are_relative_to_the_file_and_urls_are_left_alone(tmp_path: Path) -> None:
    urls = ["s3://acme/llm/", "memory://a/*.jsonl", "https://acme.example/x?y=1", "simplecache::s3://acme/x"]
    found = parse(tmp_path, ["a.jsonl", "b/**/*.gz", "/c", {"path": "d", "format": "otel"}, *urls])
    logs = found.task("t").logs
    local = [f"{tmp_path}/a.jsonl", f"{tmp_path}/b/**/*.gz", "/c", f"{tmp_path}/d"]
    assert [log.path for log in logs] == [*local, *urls]
    assert [log.format for log in logs[2:5]] == ["auto", "otel", "auto"]


@pytest.mark.parametrize("logs", ["a", ["a"], {"path": "a"}, [{"path": "a"}]])
def test_one_place_needs_no_list(tmp_path: Path, logs: Any) -> None:
    assert [log.path for log in parse(tmp_path, logs).task("t").logs] == [f"{tmp_path}/a"]


def test_files_with_formats_are_relative_to_the_file_too(tmp_path: Path) -> None:
    assert parse(tmp_path, [], formats="mine.py").formats == (f"{tmp_path}/mine.py",)


@pytest.mark.parametrize(
    ("logs", "message"),
    [
        ([{"path": "a", "fromat": "otel"}], "tasks.t.logs.0.fromat: unknown key; did you mean `format`?"),
        ([{"format": "otel"}], "tasks.t.logs.0.path: Field required"),
        (["a", "a"], "a is there twice"),
        ([{"path": "a", "format": "columns"}], "`columns` and `format: columns` go together"),
        (
            [{"path": "a", "format": "otel", "columns": {"messages": "m"}}],
            "`columns` and `format: columns` go together",
        ),
        (["https://me:pass@acme.example/x"], "a place holds no user or password"),
        ([3], "tasks.t.logs.0"),
    ],
)
def test_what_is_wrong_with_a_log_is_said_where_it_stands(tmp_path: Path, logs: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(tmp_path, logs)
    assert message in str(error.value)
    assert "pass@" not in str(error.value)
