"""Many LoRA adapters on one base: a linear layer whose rows may each have another adapter, or none.

When all rows of a forward have the same adapter, that adapter's own tensors are used as they are, so that a forward of
one request is bitwise the same whatever else is loaded. Otherwise the active adapters stand side by side in one bank:
each row is multiplied with all of them, and the columns that are not its own are set to zero. Two products of full
width are faster on a CPU than one small product per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from flywheel.engine.adapters import KEY, Adapter, digest_of
from flywheel.engine.packed import PackedLinear
from flywheel.errors import CheckpointError

Bank = tuple[tuple[str, int], ...]
"""Adapters that stand side by side, with their ranks."""


@dataclass(frozen=True)
class Factors:
    """One adapter's part in one layer, in compute dtype: ``a`` [rank, in], ``b`` [out, rank], and their factor."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float


@dataclass(frozen=True)
class Live:
    """An adapter ready to serve: what the file held, and per layer what the forward uses."""

    adapter: Adapter
    factors: dict[str, Factors]
    dtype: torch.dtype

    def digest(self) -> str:
        """Weights digest of the tensors as they are in memory now.

        Where the compute dtype differs from the file's, a tensor counts as the file's only while the one in use is
        still exactly its rounding; a changed one is hashed as it is, and the digest then differs.
        """
        tensors: dict[str, torch.Tensor] = {}
        for key, stored in self.adapter.tensors.items():
            match = KEY.match(key)
            assert match is not None, "names were checked when the adapter was read"
            factors = self.factors[match["module"]]
            used = factors.a if match["side"] == "A" else factors.b
            tensors[key] = stored if torch.equal(stored.to(self.dtype), used) else used
        return digest_of(tensors)


class Choice:
    """Which adapter each row of the coming forward has; shared by all layers of one model."""

    def __init__(self) -> None:
        self.single: str | None = None
        self.bank: Bank = ()
        self.foreign: torch.Tensor | None = None


class LoraLinear(nn.Module):
    """A linear layer with a place for adapters. Without one chosen it computes what the plain layer does."""

    def __init__(self, base: nn.Linear | PackedLinear, choice: Choice, dtype: torch.dtype) -> None:
        super().__init__()
        self.base, self.dtype = base, dtype
        self.in_features, self.out_features = base.in_features, base.out_features
        self.choice = choice
        self.factors: dict[str, Factors] = {}
        self._bank_of: Bank = ()
        self._bank: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [rows, tokens, in] -> [rows, tokens, out]."""
        y: torch.Tensor = self.base(x)
        choice = self.choice
        if choice.single is not None:
            own = self.factors.get(choice.single)
            if own is not None:
                hidden = F.linear(x, own.a)
                y.view(-1, self.out_features).addmm_(hidden.view(-1, own.a.shape[0]), own.b.t(), alpha=own.scale)
        elif choice.foreign is not None and (bank := self._gather(choice.bank)) is not None:
            a, b = bank
            hidden = F.linear(x, a).masked_fill_(choice.foreign, 0)
            y.view(-1, self.out_features).addmm_(hidden.view(-1, a.shape[0]), b)
        return y

    def forget(self, name: str) -> None:
        """Drop an adapter and any bank that may hold it."""
        self.factors.pop(name, None)
        self._bank_of, self._bank = (), None

    def _gather(self, bank: Bank) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The bank's adapters side by side: ``a`` [ranks, in], ``b`` transposed and scaled [ranks, out]."""
        if bank is not self._bank_of:
            self._bank_of, self._bank = bank, self._side_by_side(bank)
        return self._bank

    def _side_by_side(self, bank: Bank) -> tuple[torch.Tensor, torch.Tensor] | None:
        if not any(name in self.factors for name, _ in bank):
            return None
        sides_a, sides_b = [], []
        for name, rank in bank:
            own = self.factors.get(name)
            if own is None:  # this adapter leaves this layer alone
                sides_a.append(torch.zeros(rank, self.in_features, dtype=self.dtype))
                sides_b.append(torch.zeros(rank, self.out_features, dtype=self.dtype))
            else:
                sides_a.append(own.a)
                sides_b.append(own.b.t() * own.scale)
        return torch.cat(sides_a), torch.cat(sides_b)


class LoraModel:
    """The adapters of one model. All methods but `prepare` are for the thread that runs the model.

    Layers are wrapped when the first adapter that changes them is installed; a model without adapters is untouched.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.choice = Choice()
        self._layers: dict[str, LoraLinear] = {}
        self._live: dict[str, Live] = {}
        self._dtype = next(model.parameters()).dtype

    def prepare(self, adapter: Adapter, where: str) -> Live:
        """Check an adapter against the model and bring it into compute dtype. Raises CheckpointError. Any thread."""
        halves: dict[str, dict[str, torch.Tensor]] = {}
        for key, tensor in adapter.tensors.items():
            match = KEY.match(key)
            assert match is not None, "names were checked when the adapter was read"
            halves.setdefault(match["module"], {})[match["side"]] = tensor.to(self._dtype)
        factors = {name: Factors(half["A"], half["B"], adapter.config.scale) for name, half in halves.items()}
        for name, own in factors.items():
            inputs, outputs = self._shape(name, where)
            if own.a.shape[1] != inputs or own.b.shape[0] != outputs:
                found = f"{own.a.shape[1]} -> {own.b.shape[0]}"
                raise CheckpointError(f"{where}: {name} maps {found}, the model's layer {inputs} -> {outputs}")
            if not bool(torch.isfinite(own.b * own.scale).all()):
                raise CheckpointError(f"{where}: {name} overflows in {self._dtype}")
        return Live(adapter, factors, self._dtype)

    def install(self, name: str, live: Live) -> None:
        """Make a prepared adapter available."""
        for module, own in live.factors.items():
            self._layer(module).factors[name] = own
        self._live[name] = live

    def remove(self, name: str) -> None:
        """Drop an adapter; its memory is free once nothing else refers to it."""
        if self._live.pop(name, None) is not None:
            for layer in self._layers.values():
                layer.forget(name)
            self.choice.bank = ()

    def choose(self, rows: Sequence[str | None]) -> None:
        """Set the adapter of each row of the coming forwards; names must be installed."""
        choice = self.choice
        distinct = set(rows)
        choice.single, choice.foreign = None, None
        if len(distinct) == 1:
            choice.single = rows[0]
            return
        active = {name for name in distinct if name is not None}
        # A bank with adapters that no row has just now is kept for a while: making one copies every layer's factors.
        if not active <= {name for name, _ in choice.bank} or len(choice.bank) > 2 * len(active):
            choice.bank = tuple((name, self._live[name].adapter.config.rank) for name in sorted(active))
        choice.foreign = self._foreign(rows, choice.bank)

    def _foreign(self, rows: Sequence[str | None], bank: Bank) -> torch.Tensor:
        """Boolean [rows, 1, sum of ranks]: true where a bank column belongs to another adapter than the row's."""
        owners = [name for name, rank in bank for _ in range(rank)]
        return torch.tensor([[owner != row for owner in owners] for row in rows]).unsqueeze(1)

    def _layer(self, name: str) -> LoraLinear:
        layer = self._layers.get(name)
        if layer is None:
            base = self.model.get_submodule(name)
            assert isinstance(base, nn.Linear | PackedLinear), "prepare checked it"
            layer = self._layers[name] = LoraLinear(base, self.choice, self._dtype)
            parent, _, leaf = name.rpartition(".")
            setattr(self.model.get_submodule(parent), leaf, layer)
        return layer

    def _shape(self, name: str, where: str) -> tuple[int, int]:
        try:
            module = self.model.get_submodule(name)
        except AttributeError:
            raise CheckpointError(f"{where}: the model has no layer {name}; the adapter is for another base") from None
        if not isinstance(module, nn.Linear | PackedLinear | LoraLinear):
            raise CheckpointError(f"{where}: {name} is a {type(module).__name__}, not a linear layer")
        return module.in_features, module.out_features
