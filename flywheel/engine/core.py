"""The training half of the engine: one base model, one trainable LoRA adapter, and the primitives of a training loop.

``forward_backward`` and ``optim_step`` are all that a recipe needs; ``save`` writes an adapter that plain ``peft``
loads, ``save_state``/``load_state`` carry a run over a crash without changing a bit of its result. The base keeps the
compute dtype; the adapter, its gradients and the optimizer's moments are float32, and are cast where they meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from flywheel.engine.adapters import AdapterConfig, digest_of, read_adapter, write_adapter
from flywheel.engine.batches import Batch
from flywheel.engine.losses import completion_loss, weighted_nll_sum
from flywheel.errors import CheckpointError, TrainingError
from flywheel.models import Compute, ModelDir, load_model

CLIP_NORM = 1.0
BETAS = (0.9, 0.999)
PLAIN_ATTENTION_WIDTH = 96
"""Tokens; measured on SmolLM2: 22 % faster at 50 tokens, equal at 128."""
STATE_FILE = "state.safetensors"


class TrainableLora(nn.Module):
    """``base(x) + alpha / rank * x A^T B^T`` with a frozen ``base`` (Hu et al. 2021, arXiv 2106.09685).

    A [rank, in] starts as in PEFT (Kaiming uniform, a = sqrt 5), B [out, rank] at zero, so the first forward is the
    base's own.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float, generator: torch.Generator) -> None:
        super().__init__()
        self.base = base
        self.scaling = alpha / rank
        a = torch.empty(rank, base.in_features, dtype=torch.float32)
        nn.init.kaiming_uniform_(a, a=math.sqrt(5), generator=generator)
        self.lora_A = nn.Parameter(a.to(base.weight.device))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank, device=base.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out], in the dtype of ``x``."""
        low = F.linear(x, self.lora_A.to(x.dtype)) * self.scaling
        out: Tensor = self.base(x)
        return out + F.linear(low, self.lora_B.to(x.dtype))


class TrainingCore:
    """A base model with one adapter under training.

    Args:
        model: the base.
        compute: dtype of the base and number of threads.
        config: the adapter's shape; empty ``target_modules`` means every linear layer but the output head.
        init: adapter folder to go on from; None starts a new adapter. Its rank, alpha and modules must be ``config``'s.
        seed: draws the new adapter's A matrices; not used with ``init``.

    Attributes:
        config: the adapter's shape with its modules filled in.
        init_digest: digest of the adapter in ``init`` as read, or None.
        device: where the model is.

    Raises CheckpointError when ``init`` does not fit, TrainingError when nothing would be trained.
    """

    def __init__(
        self, model: ModelDir, compute: Compute, config: AdapterConfig, *, init: Path | None = None, seed: int = 0
    ) -> None:
        self.model = cast(Any, load_model(model, compute))  # a transformers model, which has no useful types
        head: nn.Module = self.model.get_output_embeddings()
        targets = config.target_modules or linear_targets(self.model, head)
        self.config = AdapterConfig(config.rank, config.alpha, tuple(sorted(targets)), config.base)
        self._loras = _wrap(self.model, head, self.config, torch.Generator().manual_seed(seed))
        self._parameters = dict(self._named_parameters())
        if not self.trainable:
            raise TrainingError(f"{model.name} has no linear layer named {', '.join(self.config.target_modules)}")
        self.init_digest = self._load_adapter(init) if init is not None else None
        self.device = next(self.model.parameters()).device
        self._optimizer = torch.optim.AdamW(self._parameters.values(), lr=0.0, betas=BETAS, weight_decay=0.0)
        self._batch: Batch | None = None
        head.register_forward_pre_hook(self._learned_positions)

    @property
    def trainable(self) -> int:
        """Number of trainable parameters."""
        return sum(parameter.numel() for parameter in self._parameters.values() if parameter.requires_grad)

    def forward_backward(self, batch: Batch) -> float:
        """Add the gradient of ``completion_loss`` on a batch to the accumulated one; returns the loss.

        Raises TrainingError when the loss is not finite; the gradient is then unusable.
        """
        loss = completion_loss(self._logits(batch), batch.targets, batch.weights)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss is {value}; lower the learning rate (train.lr) or look at the data's weights"
            )
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
        return value

    def loss(self, batch: Batch) -> tuple[float, int]:
        """Weighted negative log-likelihood summed over a batch, and its number of learned tokens; no gradient."""
        with torch.no_grad():
            total = weighted_nll_sum(self._logits(batch), batch.targets, batch.weights)
        return float(total), len(batch.targets)

    def optim_step(self, lr: float) -> float:
        """One AdamW step (betas .9 and .999, no decay) on the gradient clipped to norm 1; then forget the gradient.

        Returns the norm before clipping. Raises TrainingError when there is no gradient or it is not finite.
        """
        if any(parameter.grad is None for parameter in self._parameters.values()):
            raise TrainingError("optim_step without a gradient for every adapter tensor; call forward_backward first")
        norm = float(nn.utils.clip_grad_norm_(self._parameters.values(), CLIP_NORM))
        if not math.isfinite(norm):
            raise TrainingError(f"the gradient's norm is {norm}; lower the learning rate (train.lr)")
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def tensors(self) -> dict[str, Tensor]:
        """A copy of the adapter, float32 on the CPU, by PEFT name (``base_model.model.<module>.lora_A.weight``)."""
        return {name: parameter.detach().clone().cpu() for name, parameter in self._parameters.items()}

    def gradients(self) -> dict[str, Tensor]:
        """A copy of the accumulated gradient by the same names; tensors without one are left out."""
        return {name: p.grad.detach().clone().cpu() for name, p in self._parameters.items() if p.grad is not None}

    def weights_digest(self) -> str:
        """Digest of ``tensors()``, the one their checkpoint will have."""
        return digest_of(self.tensors())

    def save(self, folder: Path) -> str:
        """Write the adapter as a PEFT folder; returns its weights digest."""
        for name, tensor in self.tensors().items():
            if not bool(torch.isfinite(tensor).all()):
                raise TrainingError(f"adapter tensor {name} is not finite; nothing was written")
        return write_adapter(folder, self.config, self.tensors())

    def save_state(self, folder: Path) -> None:
        """Write adapter, moments and step counts to ``folder/state.safetensors`` (between ``optim_step`` calls)."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {f"adapter|{name}": tensor for name, tensor in self.tensors().items()}
        for name, parameter in self._parameters.items():
            for key, value in self._optimizer.state[parameter].items():
                state[f"{key}|{name}"] = value.detach().cpu().contiguous()
        save_file(state, folder / STATE_FILE)

    def load_state(self, folder: Path) -> None:
        """Restore what ``save_state`` wrote. Raises CheckpointError when it is damaged or of another adapter."""
        path = folder / STATE_FILE
        try:
            state = load_file(path)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path}: unreadable resume point; delete the folder to start over") from error
        if {key.partition("|")[2] for key in state} != set(self._parameters):
            raise CheckpointError(f"{path}: resume point of another adapter; delete the folder to start over")
        self._put({key.partition("|")[2]: t for key, t in state.items() if key.startswith("adapter|")}, path)
        self._optimizer.state.clear()
        for key, value in state.items():
            kind, _, name = key.partition("|")
            if kind != "adapter":
                parameter = self._parameters[name]
                moved = value if kind == "step" else value.to(parameter.device)
                self._optimizer.state[parameter][kind] = moved

    def _logits(self, batch: Batch) -> Tensor:
        self._batch = batch
        try:
            with self._attention(batch.ids.shape[1]):
                logits: Tensor = self.model(input_ids=batch.ids, use_cache=False).logits
        finally:
            self._batch = None
        return logits[0]

    def _attention(self, width: int) -> AbstractContextManager[None]:
        """On a CPU in bfloat16 the fused attention's backward is slow: for short rows the plain one saves a fifth."""
        if self.device.type == "cpu" and self.model.dtype == torch.bfloat16 and width <= PLAIN_ATTENTION_WIDTH:
            return sdpa_kernel(SDPBackend.MATH)
        return nullcontext()

    def _learned_positions(self, _head: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Let the output head see learned positions only: with a large vocabulary the rest costs most of a step."""
        assert self._batch is not None, "the core's model is called by the core only"
        return (args[0][self._batch.rows, self._batch.columns].unsqueeze(0), *args[1:])

    def _named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for name, lora in self._loras.items():
            yield f"base_model.model.{name}.lora_A.weight", lora.lora_A
            yield f"base_model.model.{name}.lora_B.weight", lora.lora_B

    def _load_adapter(self, folder: Path) -> str:
        adapter = read_adapter(folder)
        for what in ("rank", "alpha"):
            found, wanted = getattr(adapter.config, what), getattr(self.config, what)
            if found != wanted:
                raise CheckpointError(
                    f"{folder}: {what} is {found}, this run wants {wanted}; a lineage keeps its shape"
                )
        if set(adapter.config.target_modules) != set(self.config.target_modules):
            raise CheckpointError(
                f"{folder}: trains {', '.join(sorted(adapter.config.target_modules))}; "
                f"this run wants {', '.join(self.config.target_modules)}"
            )
        self._put(adapter.tensors, folder)
        return adapter.weights_digest

    def _put(self, tensors: dict[str, Tensor], where: Path) -> None:
        if set(tensors) != set(self._parameters):
            odd = sorted(set(tensors) ^ set(self._parameters))
            raise CheckpointError(f"{where}: {len(odd)} adapter tensors do not match the base, first {odd[0]}")
        for name, parameter in self._parameters.items():
            if tensors[name].shape != parameter.shape:
                found, wanted = tuple(tensors[name].shape), tuple(parameter.shape)
                raise CheckpointError(f"{where}: {name} has shape {found}, expected {wanted}")
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(tensors[name])


def linear_targets(model: nn.Module, head: nn.Module) -> tuple[str, ...]:
    """Last name parts of all linear layers but the output head: for Llama q, k, v, o, gate, up and down."""
    return tuple(
        sorted(
            {name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, nn.Linear) and m is not head}
        )
    )


def _wrap(
    model: nn.Module, head: nn.Module, config: AdapterConfig, generator: torch.Generator
) -> dict[str, TrainableLora]:
    found = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head and name.rpartition(".")[2] in config.target_modules
    ]
    loras: dict[str, TrainableLora] = {}
    for name, module in found:
        parent, _, leaf = name.rpartition(".")
        loras[name] = TrainableLora(module, config.rank, config.alpha, generator)
        setattr(model.get_submodule(parent), leaf, loras[name])
    return loras
