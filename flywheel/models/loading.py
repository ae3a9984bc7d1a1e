"""Loading weights into memory."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flywheel.errors import ModelUnavailable
from flywheel.models.compute import Compute
from flywheel.models.directory import ModelDir

if TYPE_CHECKING:
    import torch


def load_model(model: ModelDir, compute: Compute) -> torch.nn.Module:
    """The model in ``compute.dtype`` on the CPU, in evaluation mode, with no parameter asking for a gradient.

    Sets the process's thread count. Only safetensors are read and no code from the folder runs. Raises ModelUnavailable
    when the folder's contents do not make a causal language model.
    """
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(compute.threads)
    try:
        with without_progress_bars():
            loaded: torch.nn.Module = AutoModelForCausalLM.from_pretrained(
                str(model.path),
                dtype=getattr(torch, compute.dtype),
                attn_implementation="sdpa",
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
            )
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelUnavailable(f"{model.path}: cannot be loaded as a causal language model: {reason}") from error
    return loaded.eval().requires_grad_(False)


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing bars into the operator's log."""
    logging: Any = importlib.import_module("transformers.utils.logging")
    if not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
