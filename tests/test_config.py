"""flywheel.yaml: what is refused, and that the message tells how to mend it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dagster import ScheduleDefinition
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from flywheel.config import Config, TriggerPolicy, config_path, load_config, parse_config
from flywheel.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    path = folder / "flywheel.yaml"
    path.write_text(text)
    return path


def test_a_task_with_a_base_is_all_that_is_required(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "tasks: {router: {base: tiny}}"))
    assert config.task("router").base == "tiny"
    assert config.environment == "dev" and config.home == str(tmp_path / ".flywheel")


def test_a_configuration_constructs_no_objects(tmp_path: Path) -> None:
    trap = f"home: !!python/object/apply:os.mkdir ['{tmp_path / 'sprung'}']\ntasks: {{router: {{base: tiny}}}}"
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_config(write(tmp_path, trap))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks: {router: {bsae: tiny}}", "tasks.router.bsae: unknown key; did you mean `base`?"),
        ("tasks: {router: {base: tiny, labels: {maturity_hour: 1}}}", "did you mean `maturity_hours`?"),
        ("task: {}\ntasks: {router: {base: tiny}}", "task: unknown key; did you mean `tasks`?"),
        ("tasks: {router: {base: tiny, zzz: 1}}", "tasks.router.zzz: unknown key"),
        ("tasks: {}", "no task is defined"),
        ("tasks: {tiny: {base: tiny}}", "task 'tiny' is named like a base model"),
        ("tasks: {tiny: {base: other}, router: {base: tiny}}", "task 'tiny' is named like a base model"),
        ("home: x", "tasks: Field required"),
        ("tasks: {Router: {base: tiny}}", "must match"),
        ("tasks: {router: {base: tiny, gate: {alpha: 2}}}", "tasks.router.gate.alpha: Input should be less than 1"),
        ("tasks: {router: {base: tiny, labels: {gate_labels: [boss]}}}", "tasks.router.labels.gate_labels.0"),
        ("tasks: [", "not valid YAML"),
        ("- a", "expected a mapping with `tasks:`, found list"),
        ("", "expected a mapping with `tasks:`, found nothing"),
        ("tasks:\n\trouter: {base: tiny}", "line 2: not valid YAML"),
        (
            "tasks:\n  router: {base: tiny}\n  router: {base: other}",
            "line 3: not valid YAML: the key `router` is there",
        ),
        ("home: a\nhome: b\ntasks: {router: {base: tiny}}", "the key `home` is there twice"),
        ("tasks: {router: {base: ''}}", "tasks.router.base: String should have at least 1 character"),
        ("tasks: {router: {base: tiny, labels: {gate_labels: []}}}", "tasks.router.labels.gate_labels: "),
        ("tasks: {router: {base: tiny, suites: {gate_target: 40}}}", "suites: gate_min 100 is above gate_target 40"),
        ("tasks: {router: {base: tiny, trigger: {cron: every day}}}", "trigger.cron: 'every day' is no cron schedule"),
    ],
)
def test_a_fault_is_named_with_its_file_and_place(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)


def test_every_fault_gets_a_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, "hoem: x\ntasks: {router: {base: 1, serve: {top_p: 0}}}"))
    assert len(str(caught.value).splitlines()) == 3


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="flywheel init"):
        load_config(tmp_path / "flywheel.yaml")


def test_an_unknown_task_lists_the_known_ones(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "tasks: {b: {base: tiny}, a: {base: tiny}}"))
    with pytest.raises(ConfigError, match="defines: a, b"):
        config.task("router")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    raw: dict[str, Any] = {
        "home": "data",
        "tasks": {"t": {"base": "tiny", "logs": "old", "suites": {"golden_file": "golden.jsonl"}}},
    }
    config = parse_config(raw, tmp_path / "flywheel.yaml")
    assert config.home == str(tmp_path / "data")
    assert [log.path for log in config.task("t").logs] == [str(tmp_path / "old")]
    assert config.task("t").suites.golden_file == str(tmp_path / "golden.jsonl")


def test_the_environment_names_file_and_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "tasks: {router: {base: tiny}}")
    monkeypatch.setenv("FLYWHEEL_CONFIG", str(path))
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "elsewhere"))
    assert config_path() == path
    assert load_config().home == str(tmp_path / "elsewhere")


def test_a_configuration_cannot_be_changed_in_place(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "tasks: {router: {base: tiny}}"))
    with pytest.raises(ValidationError):
        config.environment = "staging"  # type: ignore[misc]  # that it is refused is the point
    assert isinstance(config, Config)


def test_a_merged_key_may_be_said_again(tmp_path: Path) -> None:
    text = "tasks:\n  a: &a {base: tiny, prompt: one}\n  b: {<<: *a, prompt: two}\n"
    config = load_config(write(tmp_path, text))
    assert (config.task("b").base, config.task("b").prompt) == ("tiny", "two")


CRON_PARTS = st.sampled_from(
    [
        "*",
        "*/5",
        "0",
        "1",
        "7",
        "12",
        "31",
        "59",
        "60",
        "1-5",
        "5-1",
        "1,15",
        "mon-fri",
        "sun",
        "jan",
        "2/3",
        "x",
        "",
        "*/0",
    ]
)


@given(st.lists(CRON_PARTS, min_size=4, max_size=6).map(" ".join) | st.sampled_from(["@daily", "@weekly", "@noon"]))
@example("0 3 * * *")
@example("30 2 1,15 jan-jun mon-fri")
def test_a_schedule_that_is_accepted_is_one_that_the_scheduler_loads(cron: str) -> None:
    try:
        TriggerPolicy(cron=cron)
    except ValidationError:
        assert cron not in ("0 3 * * *", "30 2 1,15 jan-jun mon-fri", "@daily")
        return
    ScheduleDefinition(name="nightly", cron_schedule=cron, job_name="job")
