"""The tiny model: what the other tests stand on."""

from __future__ import annotations

from pathlib import Path

import torch

from flywheel.models import Compute, ModelDir, load_model, make_tiny, resolve


def test_equal_seeds_give_equal_digests_and_other_seeds_other_weights(tiny: ModelDir, tmp_path: Path) -> None:
    again = make_tiny(tmp_path / "again")
    other = make_tiny(tmp_path / "other", seed=1)
    assert again.base_digest == tiny.base_digest
    assert other.weights_digest != tiny.weights_digest
    assert (other.tokenizer_digest, other.template_digest) == (tiny.tokenizer_digest, tiny.template_digest)


def test_transformers_alone_loads_model_and_tokenizer(tiny: ModelDir) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny.path, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(tiny.path, local_files_only=True)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hé"}], tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
    assert len(model.generate(ids, max_new_tokens=3, do_sample=False)[0]) <= ids.shape[1] + 3
    assert tokenizer.decode(tokenizer.encode("naïve €𝄞", add_special_tokens=False)) == "naïve €𝄞"


def test_resolve_makes_it_on_demand_and_finds_it_again(tiny: ModelDir, model_cache: Path) -> None:
    before = (model_cache / "tiny" / "model.safetensors").stat().st_mtime_ns
    assert resolve("tiny") == tiny
    assert (model_cache / "tiny" / "model.safetensors").stat().st_mtime_ns == before


def test_a_loaded_model_is_frozen_in_evaluation_mode_and_in_the_asked_dtype(tiny: ModelDir) -> None:
    for dtype in ("float32", "bfloat16"):
        model = load_model(tiny, Compute(dtype, 1))
        assert not model.training
        assert {(p.dtype, p.requires_grad) for p in model.parameters()} == {(getattr(torch, dtype), False)}
