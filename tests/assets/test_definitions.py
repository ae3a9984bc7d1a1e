"""What Dagster loads: per task the same assets, jobs, sensors and check, from ``flywheel.yaml``, without a warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from flywheel.config import parse_config
from flywheel.definitions import build_definitions

ROOT = Path(__file__).parents[2]
STAGES = ["interactions", "labels", "dataset", "candidate", "evaluation", "champion"]


@pytest.fixture
def defs(tmp_path: Path) -> dg.Definitions:
    """Two tasks, one of them with a schedule."""
    tasks = {"router": {"base": "tiny", "trigger": {"interval_seconds": 7}}, "summary": {"base": "tiny"}}
    tasks["summary"]["trigger"] = {"cron": "0 3 * * *"}
    return build_definitions(parse_config({"tasks": tasks}, tmp_path / "flywheel.yaml"))


def test_the_definitions_are_valid(defs: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(defs)


@pytest.mark.parametrize("task", ["router", "summary"])
def test_each_task_has_six_assets_in_a_chain_under_its_own_prefix_and_group(defs: dg.Definitions, task: str) -> None:
    graph = defs.resolve_asset_graph()
    keys = [dg.AssetKey([task, stage]) for stage in STAGES]
    assert {key for key in graph.get_all_asset_keys() if key.path[0] == task} == set(keys)
    assert {graph.get(key).group_name for key in keys} == {task}
    assert [graph.get(key).parent_keys for key in keys] == [set(), *({key} for key in keys[:-1])]
    assert all(graph.get(key).description for key in keys), "each asset's page explains it"


def test_the_only_check_is_the_gate_on_evaluation_and_it_blocks(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()
    found = {key.to_user_string(): graph.get_check_spec(key).blocking for key in graph.asset_check_keys}
    assert found == {"router/evaluation:gate": True, "summary/evaluation:gate": True}


def test_each_task_has_two_jobs_that_one_run_at_a_time_may_work_on(defs: dg.Definitions) -> None:
    jobs = {job.name: job for job in defs.resolve_all_job_defs() if not job.name.startswith("__")}
    assert sorted(jobs) == ["router_intake", "router_loop", "summary_intake", "summary_loop"]
    selected = {name: sorted(key.path[-1] for key in job.asset_layer.selected_asset_keys) for name, job in jobs.items()}
    assert selected["router_intake"] == ["interactions", "labels"]
    assert selected["router_loop"] == sorted(STAGES[2:])
    assert jobs["router_intake"].tags == {"flywheel/intake": "router"}
    assert jobs["summary_loop"].tags == {"flywheel/loop": "summary"}
    assert {job.executor_def.name for job in jobs.values()} == {"in_process"}


def test_sensors_run_by_default_at_the_tasks_interval_and_cron_makes_a_schedule(defs: dg.Definitions) -> None:
    sensors = {sensor.name: sensor for sensor in defs.sensors or ()}
    tasks = [f"{task}_{job}_sensor" for task in ("router", "summary") for job in ("intake", "loop")]
    assert sorted(sensors) == sorted([*tasks, "failure_alert"])
    assert {sensor.default_status for sensor in sensors.values()} == {dg.DefaultSensorStatus.RUNNING}
    assert sensors["router_loop_sensor"].minimum_interval_seconds == 7
    (schedule,) = defs.schedules or ()
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert (schedule.name, schedule.cron_schedule) == ("summary_loop_schedule", "0 3 * * *")
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["dagster", "definitions", "validate", "-w", "workspace.yaml"],
        ["dg", "check", "defs"],
        ["dg", "list", "defs", "--json"],
    ],
    ids=["dagster validate", "dg check", "dg list"],
)
def test_dagsters_own_commands_load_the_project_without_a_warning(command: list[str], tmp_path: Path) -> None:
    config = tmp_path / "flywheel.yaml"
    config.write_text("home: home\ntasks: {router: {base: tiny}}\n")
    environment = _environment(tmp_path, config)
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        [str(scripts / command[0]), *command[1:]], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    # `dagster definitions validate` speaks against itself, in favour of `dg check defs`.
    ours = [line for line in said.splitlines() if "warn" in line.lower() and "SupersessionWarning" not in line]
    assert not ours, said
    if "list" in command:
        assert '"router/champion"' in said


def test_loading_warns_of_nothing(tmp_path: Path) -> None:
    config = tmp_path / "flywheel.yaml"
    config.write_text("home: home\ntasks: {router: {base: tiny, trigger: {cron: '0 3 * * *'}}}\n")
    code = (
        "import warnings; import dagster; warnings.simplefilter('error'); "
        "import flywheel.definitions as d; dagster.Definitions.validate_loadable(d.defs)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=_environment(tmp_path, config), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def _environment(folder: Path, config: Path) -> dict[str, Any]:
    (folder / "dagster").mkdir()
    (folder / "dagster" / "dagster.yaml").write_bytes((ROOT / "dagster.yaml").read_bytes())
    venv = {"VIRTUAL_ENV": sys.prefix}  # `dg` compares it with the project's
    own = venv | {"FLYWHEEL_CONFIG": str(config), "DAGSTER_HOME": str(folder / "dagster"), "HOME": str(folder)}
    return {**os.environ, **own}
