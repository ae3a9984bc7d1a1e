"""Weights blocked for the CPU's matrix unit: the same numbers, only sooner."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from flywheel.engine.packed import PackedLinear, can_pack, pack
from flywheel.models import Compute, ModelDir, load_model

pytestmark = pytest.mark.skipif(not can_pack(), reason="this torch has no blocked layers")


@pytest.mark.parametrize("shape", [(1, 1), (1, 8), (8, 1), (3, 50), (1, 400)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_layer_gives_the_same_bits(shape: tuple[int, int], bias: bool) -> None:
    torch.manual_seed(1)
    plain = nn.Linear(96, 64, bias=bias).bfloat16()
    x = torch.randn(*shape, 96).bfloat16()
    with torch.inference_mode():
        assert torch.equal(PackedLinear(plain)(x), plain(x))


def test_only_bfloat16_layers_are_packed() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8).bfloat16(), nn.ReLU()))
    pack(model)
    assert type(model[0]) is nn.Linear and type(model[1][0]) is PackedLinear


def test_a_packed_model_gives_the_same_logits(tiny: ModelDir) -> None:
    compute = Compute("bfloat16", 1)
    plain, packed = load_model(tiny, compute), load_model(tiny, compute)
    pack(packed)
    assert not any(type(module) is nn.Linear for module in packed.modules())
    ids = torch.arange(12).unsqueeze(0)
    with torch.inference_mode():
        assert torch.equal(packed(input_ids=ids).logits, plain(input_ids=ids).logits)
