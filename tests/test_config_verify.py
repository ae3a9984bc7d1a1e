"""Verifiers and the judge in flywheel.yaml: what is refused, and where files are looked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flywheel.config import Config, parse_config
from flywheel.errors import ConfigError
from flywheel.labels import policy_digest


def config(folder: Path, **labels: Any) -> Config:
    raw = {"home": "home", "tasks": {"router": {"base": "tiny", "labels": labels}}}
    return parse_config(raw, folder / "flywheel.yaml")


def fault(folder: Path, **labels: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config(folder, **labels)
    return str(caught.value)


JUDGE = {"endpoint": "http://vllm:8000/v1", "model": "big"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "a"}, "expected exactly one of `python`, `schema`, `regex`, `sql`"),
        ({"name": "a", "regex": "x", "python": "m:f"}, "expected exactly one of"),
        ({"name": "A b", "regex": "x"}, "verifiers.0.name: verifier name 'A b' must match [a-z][a-z0-9_]*"),
        ({"regex": "x"}, "verifiers.0.name: Field required"),
        ({"name": "a", "regex": "("}, "verifiers.0.regex: not a regular expression: "),
        (
            {"name": "a", "python": "module.function"},
            "is no import path of a function; expected package.module:function",
        ),
        ({"name": "a", "shema": "x.json"}, "verifiers.0.shema: unknown key; did you mean `schema`?"),
        ({"name": "a", "json_schema": "x.json"}, "verifiers.0.json_schema: unknown key; did you mean `schema`?"),
        ({"name": "a", "sql": {"database": "x"}}, "verifiers.0.sql.query: Field required"),
        ({"name": "a", "sql": {"database": "x", "query": "y", "querry": "z"}}, "unknown key; did you mean `query`?"),
    ],
)
def test_a_fault_in_a_verifier_is_named_with_its_place(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    told = fault(tmp_path, verifiers=[entry])
    assert "tasks.router.labels.verifiers" in told and message in told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"endpoint": "vllm:8000"}, "judge.endpoint: expected an address such as"),
        (
            {"endpoint": "http://me:secret@vllm/v1"},
            "judge.endpoint: an address holds no user, query or fragment; a key ",
        ),
        ({"key_env": "sk-secret"}, "judge.key_env: expected the name of an environment variable"),
        ({"model": ""}, "judge.model: String should have at least 1 character"),
        ({"share": 2}, "judge.share: Input should be less than or equal to 1"),
        ({"max_per_run": 0}, "judge.max_per_run"),
        ({"rubrik": "x"}, "judge.rubrik: unknown key; did you mean `rubric`?"),
    ],
)
def test_a_fault_in_the_judge_is_named_without_what_may_be_a_secret(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    told = fault(tmp_path, judge={**JUDGE, **change})
    assert message in told and "secret" not in told


def test_two_verifiers_of_one_name_are_refused(tmp_path: Path) -> None:
    told = fault(tmp_path, verifiers=[{"name": "a", "regex": "x"}, {"name": "a", "regex": "y"}])
    assert "the verifier a is there twice" in told


def test_files_of_verifiers_are_relative_to_the_configuration(tmp_path: Path) -> None:
    entries = [
        {"name": "a", "schema": "answer.json"},
        {"name": "b", "sql": {"database": "/data/shop.sqlite", "query": "SELECT 1"}},
        {"name": "c", "python": "checks:verify"},
    ]
    found = config(tmp_path, verifiers=entries).task("router").labels.verifiers
    assert found[0].json_schema == str(tmp_path / "answer.json")
    assert found[1].sql is not None and found[1].sql.database == "/data/shop.sqlite"
    assert found[2].folder == str(tmp_path)


def test_what_is_shown_can_be_read_again(tmp_path: Path) -> None:
    shown = config(tmp_path, verifiers=[{"name": "a", "schema": "answer.json"}], judge=JUDGE).model_dump(mode="json")
    again = parse_config(shown, tmp_path / "flywheel.yaml")
    assert again.model_dump(mode="json") == shown


def test_verifiers_and_the_judge_change_no_label_by_being_named(tmp_path: Path) -> None:
    plain, named = config(tmp_path), config(tmp_path, verifiers=[{"name": "a", "regex": "x"}], judge=JUDGE)
    assert policy_digest(plain.task("router").labels) == policy_digest(named.task("router").labels)
