"""Adapter folders: plain PEFT reads what we write, we read what PEFT writes, and damage is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from flywheel.engine.adapters import AdapterConfig, read_adapter, write_adapter
from flywheel.errors import CheckpointError
from flywheel.models import Compute, ModelDir, load_model
from flywheel.store.digests import tensor_digests, weights_digest

KEY = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"


def a_pair(rank: int = 2) -> dict[str, torch.Tensor]:
    return {KEY.format("A"): torch.ones(rank, 64), KEY.format("B"): torch.ones(64, rank)}


def settings(rank: int = 2) -> AdapterConfig:
    return AdapterConfig(rank=rank, alpha=4.0, target_modules=("q_proj",), base="tiny")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_adapter_comes_back_as_written_in_its_own_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {name: tensor.to(dtype) for name, tensor in a_pair().items()}
    digest = write_adapter(tmp_path / "a", settings(), tensors)
    adapter = read_adapter(tmp_path / "a")
    assert (adapter.config, adapter.weights_digest) == (settings(), digest)
    assert all(torch.equal(adapter.tensors[name], tensors[name]) for name in tensors)
    assert {tensor.dtype for tensor in adapter.tensors.values()} == {dtype}
    assert digest == weights_digest(tensor_digests(tmp_path / "a" / "adapter_model.safetensors"))


def test_what_peft_saves_is_read(tiny: ModelDir, fp32: Compute, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    config = LoraConfig(r=3, lora_alpha=6, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM")
    get_peft_model(load_model(tiny, fp32), config).save_pretrained(tmp_path / "peft")
    adapter = read_adapter(tmp_path / "peft")
    assert (adapter.config.rank, adapter.config.alpha) == (3, 6.0)
    assert adapter.config.target_modules == ("q_proj", "up_proj")
    assert len(adapter.tensors) == 2 * 2 * 2


def test_peft_loads_what_we_write(
    tiny: ModelDir, fp32: Compute, tmp_path: Path, random_adapter: Callable[..., Path]
) -> None:
    from peft import PeftModel

    folder = random_adapter(tmp_path / "a", seed=4)
    model = PeftModel.from_pretrained(load_model(tiny, fp32), folder)
    loaded = model.base_model.model.model.layers[1].mlp.up_proj.lora_B["default"].weight
    key = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"
    assert torch.equal(loaded, read_adapter(folder).tensors[key])


def damage_config(**changes: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        file = folder / "adapter_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return damage


def damage_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = a_pair()
        change(tensors)
        safetensors.torch.save_file(tensors, folder / "adapter_model.safetensors")

    return damage


def cut(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (damage_config(r=3), "rank 3"),
        (damage_config(r="2"), "positive integer"),
        (damage_config(peft_type="IA3"), "LORA"),
        (damage_config(use_dora=True), "use_dora"),
        (damage_config(bias="all"), "bias"),
        (damage_config(rank_pattern={"q_proj": 4}), "rank_pattern"),
        (damage_config(lora_alpha=float("inf")), "finite"),
        (damage_tensors(lambda t: t.pop(KEY.format("B"))), "partner"),
        (damage_tensors(lambda t: t.update({KEY.format("A"): torch.full((2, 64), float("nan"))})), "not finite"),
        (damage_tensors(lambda t: t.update({KEY.format("A"): torch.ones(2, 64, dtype=torch.int32)})), "dtype"),
        (damage_tensors(lambda t: t.update({"lm_head.weight": torch.ones(2)})), "lm_head.weight"),
        (damage_tensors(lambda t: t.clear()), "no tensors"),
        (cut, "truncated"),
        (lambda folder: (folder / "adapter_config.json").unlink(), "adapter_config.json"),
        (lambda folder: (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin"), "pickle"),
    ],
)
def test_a_damaged_or_foreign_adapter_is_refused_by_name(
    tmp_path: Path, damage: Callable[[Path], object], says: str
) -> None:
    write_adapter(tmp_path, settings(), a_pair())
    damage(tmp_path)
    with pytest.raises(CheckpointError, match=says):
        read_adapter(tmp_path)


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    tensors = a_pair()
    tensors[KEY.format("B")][0, 0] = float("inf")
    with pytest.raises(CheckpointError, match="not finite"):
        write_adapter(tmp_path / "a", settings(), tensors)
    assert not (tmp_path / "a").exists()
