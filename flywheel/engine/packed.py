"""Linear layers whose weights lie in memory as the CPU's matrix unit wants them.

oneDNN multiplies bfloat16 with blocked weights. A plain tensor is blocked anew in every call, and a decode step, which
reads all weights for a handful of rows, then spends a third of its time on that. Results are bitwise the same. The
operators are those that torch's own compiler uses; where torch has none, layers stay as they are.
"""

from __future__ import annotations

import torch
from torch import nn


class PackedLinear(nn.Module):
    """``base`` with its weight blocked; for inference on a CPU only. The plain weight can be freed."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = base.in_features, base.out_features, base.bias
        self._weight = torch.ops.mkldnn._reorder_linear_weight(base.weight.detach(), None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., in] -> [..., out]."""
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self.bias, "none", [], "")
        return y


def pack(model: nn.Module) -> None:
    """Put a `PackedLinear` in the place of each linear layer, where that is possible and pays: bfloat16 on a CPU."""
    if not can_pack():
        return
    for name, module in list(model.named_modules()):
        for leaf, child in list(module.named_children()):
            if type(child) is nn.Linear and child.weight.dtype == torch.bfloat16 and child.weight.device.type == "cpu":
                setattr(model.get_submodule(name), leaf, PackedLinear(child))


def can_pack() -> bool:
    """Whether this torch has the operators, and this CPU what they need."""
    names = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return False
    return all(hasattr(torch.ops.mkldnn, name) for name in names) and torch.ops.mkldnn._is_mkldnn_bf16_supported()
