"""LoRA adapters on disk, in PEFT's format: reading with every check that can be made without the model, and writing."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from flywheel.errors import CheckpointError
from flywheel.store.digests import tensor_digest, tensor_digests, weights_digest
from flywheel.store.files import read_json, write_atomic, write_json

WEIGHTS_FILE, CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"

KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.weight\Z")

DTYPE_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
"""Dtypes an adapter may have, in safetensors' spelling."""

UNSUPPORTED = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication")
"""PEFT options that change the arithmetic; an adapter that uses one is refused instead of served wrongly."""


@dataclass(frozen=True)
class AdapterConfig:
    """What besides the tensors defines a LoRA adapter. Its update is ``x A^T B^T alpha / rank``."""

    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    base: str

    @property
    def scale(self) -> float:
        """The factor on the low-rank update."""
        return self.alpha / self.rank


@dataclass(frozen=True)
class Adapter:
    """An adapter in memory; ``tensors`` by PEFT key, in the file's dtype."""

    config: AdapterConfig
    tensors: dict[str, torch.Tensor]
    weights_digest: str


def read_adapter(folder: Path) -> Adapter:
    """Read a PEFT LoRA folder and check it: kind, options, names, ranks, shapes, dtypes, finite values.

    Raises CheckpointError saying what is wrong with which tensor or option.
    """
    raw = _read_config(folder / CONFIG_FILE)
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        other = " (adapter_model.bin is a pickle and is not read)" if (folder / "adapter_model.bin").is_file() else ""
        raise CheckpointError(f"{folder}: no {WEIGHTS_FILE}{other}")
    digests = tensor_digests(path)
    try:
        tensors = safetensors.torch.load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a readable safetensors file: {error}") from error
    rank = raw["r"]
    modules = check_tensors(tensors, rank, str(path))
    config = AdapterConfig(
        rank=rank,
        alpha=float(raw.get("lora_alpha", rank)),
        target_modules=tuple(sorted({module.rsplit(".", 1)[-1] for module in modules})),
        base=str(raw.get("base_model_name_or_path") or ""),
    )
    return Adapter(config, tensors, weights_digest(digests))


def write_adapter(folder: Path, config: AdapterConfig, tensors: dict[str, torch.Tensor]) -> str:
    """Write an adapter that `read_adapter` and plain ``peft`` load; return its weights digest.

    The configuration is written last. Raises CheckpointError for tensors that do not make a sound adapter.
    """
    check_tensors(tensors, config.rank, str(folder))
    ordered = {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}
    write_atomic(folder / WEIGHTS_FILE, safetensors.torch.save(ordered, metadata={"format": "pt"}))
    write_json(
        folder / CONFIG_FILE,
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": config.base,
            "r": config.rank,
            "lora_alpha": config.alpha,
            "lora_dropout": 0.0,
            "target_modules": sorted(config.target_modules),
            "bias": "none",
            "fan_in_fan_out": False,
            "inference_mode": True,
        },
    )
    return digest_of(ordered)


def digest_of(tensors: dict[str, torch.Tensor]) -> str:
    """The weights digest of tensors in memory, equal to that of a file that holds them."""
    return weights_digest({name: _digest(tensor) for name, tensor in tensors.items()})


def check_tensors(tensors: dict[str, torch.Tensor], rank: int, where: str) -> set[str]:
    """Check names, pairs, ranks, dtypes and values; return the module paths the adapter changes."""
    sides: dict[str, set[str]] = {}
    for name, tensor in tensors.items():
        match = KEY.match(name)
        if not match:
            raise CheckpointError(f"{where}: tensor {name!r} is not a LoRA weight of a linear layer")
        if tensor.dtype not in DTYPE_NAMES:
            raise CheckpointError(f"{where}: {name} has dtype {tensor.dtype}; expected float32, bfloat16 or float16")
        at = 0 if match["side"] == "A" else 1
        if tensor.dim() != 2 or tensor.shape[at] != rank:
            raise CheckpointError(f"{where}: {name} has shape {tuple(tensor.shape)}, which does not fit rank {rank}")
        if not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{where}: {name} holds values that are not finite")
        sides.setdefault(match["module"], set()).add(match["side"])
    if not sides:
        raise CheckpointError(f"{where}: the adapter holds no tensors")
    for module, have in sides.items():
        if have != {"A", "B"}:
            raise CheckpointError(f"{where}: {module} has lora_{have.pop()} but not its partner")
    return set(sides)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        raw = read_json(path)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; an adapter folder needs it") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(raw, dict) or raw.get("peft_type") != "LORA":
        raise CheckpointError(f"{path}: peft_type must be LORA")
    used = [key for key in UNSUPPORTED if raw.get(key)]
    if raw.get("bias", "none") != "none":
        used.append("bias")
    if used:
        raise CheckpointError(f"{path}: uses {', '.join(used)}, which is not supported; train a plain LoRA adapter")
    rank, alpha = raw.get("r"), raw.get("lora_alpha", 1)
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise CheckpointError(f"{path}: r must be a positive integer, found {rank!r}")
    if not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise CheckpointError(f"{path}: lora_alpha must be a finite number, found {alpha!r}")
    return raw


def _digest(tensor: torch.Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return tensor_digest(DTYPE_NAMES[tensor.dtype], tensor.shape, raw)
