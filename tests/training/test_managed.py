"""Training on the user's own files, and the registry's view of checkpoints."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from flywheel.errors import TrainingError
from flywheel.store.registry import schema
from flywheel.training.checkpoint import register_checkpoint, registered_checkpoint
from flywheel.training.curve import curve_png
from flywheel.training.managed import train_and_register, train_on_files

if TYPE_CHECKING:
    from flywheel.models import ModelDir
    from flywheel.training.spec import TrainSpec

QUICK = {"rank": 4, "alpha": 8.0, "lr": 2e-2, "batch_size": 4, "max_steps": 6, "checkpoint_every": 3}


def write_rows(path: Path, count: int, word: str) -> Path:
    """Rows whose texts share next to nothing, so that none is a near copy of another."""
    rows = [
        {"text": f"{word} {hash_text(number)}", "label": "red" if number % 2 else "blue"} for number in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def hash_text(number: int) -> str:
    import hashlib

    return hashlib.sha256(str(number).encode()).hexdigest()[:24]


def test_files_become_a_registered_checkpoint_once(
    make_deployment: Callable[..., Any], tiny: ModelDir, tmp_path: Path
) -> None:
    at = make_deployment("home", {"train": QUICK}, compute={"dtype": "float32", "threads": 1})
    train, val = write_rows(tmp_path / "train.jsonl", 24, "a"), write_rows(tmp_path / "val.jsonl", 0, "b")
    val.write_text(json.dumps({"text": "something else entirely", "label": "red"}) + "\n")
    lines: list[str] = []
    run = train_on_files(at.config, at.home, at.registry, at.task, train, val, lines.append)
    assert any(line.startswith("step 6/6") for line in lines)
    assert run.manifest["dataset"] == run.dataset
    assert [step for step, _ in run.losses["val"]] == [0, 3, 6]
    with at.registry.read() as tx:
        row = tx.row(sa.select(schema.checkpoints))
    assert row is not None
    assert (row["digest"], row["dataset"], row["parent"]) == (run.checkpoint, run.dataset, None)
    lines.clear()
    again = train_on_files(at.config, at.home, at.registry, at.task, train, val, lines.append)
    assert again == run
    assert lines[-1] == f"already trained: checkpoint {run.checkpoint[:12]}"


def test_rows_that_are_left_out_of_a_run_on_files_are_said(
    make_deployment: Callable[..., Any], tiny: ModelDir, tmp_path: Path
) -> None:
    at = make_deployment("home", {"train": QUICK}, compute={"dtype": "float32", "threads": 1})
    train, val = write_rows(tmp_path / "train.jsonl", 24, "a"), tmp_path / "val.jsonl"
    val.write_text(train.read_text().splitlines()[0] + "\n")
    lines: list[str] = []
    train_on_files(at.config, at.home, at.registry, at.task, train, val, lines.append)
    assert lines[0].endswith(": 23 training and 1 validation examples; left out: 1 eval copy")


def test_the_childs_reason_becomes_the_parents_error(deployment: Any, plan_run: Callable[..., TrainSpec]) -> None:
    spec = plan_run().model_copy(update={"base_digest": "0" * 64})
    lines: list[str] = []
    with pytest.raises(TrainingError, match="was planned for 000000000000"):
        train_and_register(spec, deployment.registry, lines.append)
    assert not any("error" in line for line in lines)


def test_a_checkpoint_is_registered_once_and_found_by_its_inputs(deployment: Any) -> None:
    manifest = {
        "digest": "a" * 64,
        "task": "support_router",
        "input_digest": "b" * 64,
        "parent": None,
        "dataset": "c" * 64,
    }
    assert register_checkpoint(deployment.registry, manifest) == "a" * 64
    register_checkpoint(deployment.registry, {**manifest, "steps": 3})
    with deployment.registry.read() as tx:
        assert [row["manifest"] for row in tx.rows(sa.select(schema.checkpoints))] == [manifest]
    assert registered_checkpoint(deployment.registry, deployment.home, "b" * 64) is None, "its files are not here"
    folder = deployment.home.checkpoints / ("a" * 64)
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    assert registered_checkpoint(deployment.registry, deployment.home, "b" * 64) == manifest
    assert registered_checkpoint(deployment.registry, deployment.home, "d" * 64) is None


@pytest.mark.parametrize("steps", [0, 1, 500])
def test_the_loss_curve_is_a_small_picture(steps: int) -> None:
    losses = {"train": [[n + 1, 3.0 / (n + 1) ** 0.5] for n in range(steps)], "val": [[0, 3.0], [steps, 0.5]]}
    png = curve_png(losses, title="support_router/7")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (640, 320)
    assert len(png) < 50_000
