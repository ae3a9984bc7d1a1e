"""The tiny random Llama with a byte tokenizer that tests use: made on the spot, in under a second, always the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flywheel.models.directory import ModelDir, describe
from flywheel.models.loading import without_progress_bars
from flywheel.store.files import locked, publish_folder, remove_tree

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tiny(path: Path, *, seed: int = 0) -> ModelDir:
    """Write a 2-layer Llama of hidden size 64 with random weights and one token per byte into ``path``.

    Equal seeds give equal digests. The weights are larger than a trained model's, so that answers to different prompts
    differ and the likeliest token wins by more than rounding.
    """
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    path.mkdir(parents=True, exist_ok=True)
    vocabulary = _vocabulary()
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=vocabulary[END_OF_TEXT],
        eos_token_id=vocabulary[TURN_END],
        pad_token_id=vocabulary[END_OF_TEXT],
    )
    model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 1.5 / parameter.shape[1] ** 0.5)
    ids = ("bos_token_id", "eos_token_id", "pad_token_id")
    model.generation_config = GenerationConfig.from_dict({name: getattr(config, name) for name in ids})
    with without_progress_bars():
        model.save_pretrained(path)
    _write_tokenizer(path, vocabulary)
    return describe(path.name, path)


def make_tiny_once(path: Path) -> None:
    """Make the tiny model unless it is there; the folder appears whole or not at all."""
    if path.is_dir():
        return
    with locked(path.with_name(f".{path.name}.lock")):
        if path.is_dir():
            return
        temporary = path.with_name(f".{path.name}.part")
        remove_tree(temporary)
        try:
            make_tiny(temporary)
            publish_folder(temporary, path)
        except BaseException:
            remove_tree(temporary)
            raise


def _vocabulary() -> dict[str, int]:
    from tokenizers.pre_tokenizers import ByteLevel

    return {token: i for i, token in enumerate([END_OF_TEXT, TURN_START, TURN_END, *sorted(ByteLevel.alphabet())])}


def _write_tokenizer(path: Path, vocabulary: dict[str, int]) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    wrap: Any = PreTrainedTokenizerFast  # transformers leaves its constructor untyped

    backend: Any = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, special=True) for t in (END_OF_TEXT, TURN_START, TURN_END)])
    tokenizer = wrap(tokenizer_object=backend, bos_token=END_OF_TEXT, eos_token=TURN_END, pad_token=END_OF_TEXT)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(path)
