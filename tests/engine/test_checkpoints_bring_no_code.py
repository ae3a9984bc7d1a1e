"""Rule 10: adapters and resume points are safetensors and JSON. A pickle in their place is refused unread, and a name
of code in a configuration stays a name."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flywheel.engine.adapters import AdapterConfig, read_adapter
from flywheel.engine.core import TrainingCore
from flywheel.engine.engine import Engine
from flywheel.errors import CheckpointError
from flywheel.models import Compute, ModelDir


@pytest.fixture
def adapter(tmp_path: Path, random_adapter: Callable[..., Path]) -> Path:
    return random_adapter(tmp_path / "adapter", seed=1)


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt"])
def test_a_pickle_in_place_of_the_weights_is_refused_unread(
    adapter: Path, tmp_path: Path, trap: Callable[[Path], bytes], name: str
) -> None:
    (adapter / "adapter_model.safetensors").unlink()
    (adapter / name).write_bytes(trap(tmp_path / "sprung"))
    with pytest.raises(CheckpointError):
        read_adapter(adapter)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["adapter_model.bin", "training_args.bin", "optimizer.pt", "trap.py"])
def test_what_lies_beside_the_weights_is_left_alone(
    adapter: Path, tmp_path: Path, tiny: ModelDir, fp32: Compute, trap: Callable[[Path], bytes], name: str
) -> None:
    pickled = trap(tmp_path / "sprung")
    (adapter / name).write_bytes(pickled if not name.endswith(".py") else b"raise SystemExit\n")
    with Engine(tiny, fp32) as engine:
        assert engine.load_adapter("a", adapter) == read_adapter(adapter).weights_digest
    assert not (tmp_path / "sprung").exists()


def test_code_that_a_configuration_names_is_not_imported(
    adapter: Path, tmp_path: Path, tiny: ModelDir, fp32: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    (adapter / "code_of_an_adapter.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'sprung')!r})\n")
    monkeypatch.syspath_prepend(str(adapter))
    file = adapter / "adapter_config.json"
    named = {
        "auto_mapping": {"base_model_class": "Model", "parent_library": "code_of_an_adapter"},
        "auto_map": {"AutoModel": "code_of_an_adapter.Model"},
        "_custom_modules": {"Linear": "code_of_an_adapter.Linear"},
    }
    file.write_text(json.dumps(json.loads(file.read_text()) | named))
    read = read_adapter(adapter)
    with Engine(tiny, fp32) as engine:
        engine.load_adapter("a", adapter)
    shape = AdapterConfig(read.config.rank, read.config.alpha, (), tiny.name)
    assert TrainingCore(tiny, fp32, shape, init=adapter).init_digest == read.weights_digest
    assert "code_of_an_adapter" not in sys.modules and not (tmp_path / "sprung").exists()


def test_a_pickled_resume_point_is_refused_unread(
    tiny: ModelDir, fp32: Compute, tmp_path: Path, trap: Callable[[Path], bytes]
) -> None:
    core = TrainingCore(tiny, fp32, AdapterConfig(2, 4.0, (), tiny.name))
    core.save_state(tmp_path / "point")
    shutil.copytree(tmp_path / "point", tmp_path / "pickled")
    (tmp_path / "pickled" / "state.safetensors").write_bytes(trap(tmp_path / "sprung"))
    with pytest.raises(CheckpointError, match="unreadable resume point"):
        core.load_state(tmp_path / "pickled")
    assert not (tmp_path / "sprung").exists()
