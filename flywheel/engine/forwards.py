"""The model as the engine uses it: reading a prompt, one decode step for many rows, and a teacher-forced pass."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from flywheel.engine.kv import RowCache
from flywheel.engine.lora import LoraModel
from flywheel.engine.packed import pack
from flywheel.errors import ModelUnavailable
from flywheel.models import Compute, ModelDir, load_model

LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})
"""Position encodings that change with the longest row of a batch: a row's answer would depend on its neighbours."""


class Forwards:
    """A causal language model with adapters and a row cache. Not for two threads at once.

    Raises ModelUnavailable for architectures whose rows cannot share a forward here.
    """

    def __init__(self, model: ModelDir, compute: Compute, *, rows: int, max_context: int) -> None:
        loaded: Any = load_model(model, compute)
        config = loaded.config.get_text_config()
        self.max_context = min(max_context, int(config.max_position_embeddings))
        _check(config, self.max_context, model)
        self.vocab_size = int(config.vocab_size)
        self._dtype: torch.dtype = next(loaded.parameters()).dtype
        pack(loaded)
        self._model = loaded
        loaded.get_output_embeddings().register_forward_pre_hook(_own_memory)
        self._cache_name = "cache" if "cache" in inspect.signature(loaded.forward).parameters else "past_key_values"
        self.adapters = LoraModel(loaded)
        self._cache = RowCache(
            layers=int(config.num_hidden_layers),
            rows=rows,
            heads=int(config.num_key_value_heads),
            head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads),
            limit=self.max_context,
            dtype=self._dtype,
        )

    def read(self, ids: Sequence[int], start: int, adapter: str | None) -> torch.Tensor:
        """Read prompt tokens [start, start + len(ids)) into the staging row; logits [vocab] after the last of them."""
        count = len(ids)
        self.adapters.choose([adapter])
        self._cache.reading(start, count)
        positions = torch.arange(start, start + count)
        seen = torch.arange(start + count) <= positions.unsqueeze(1)
        return self._forward(torch.tensor([list(ids)]), positions.unsqueeze(0), seen[None, None])[0, -1]

    def read_together(
        self, prompts: Sequence[Sequence[int]], first: int, adapters: Sequence[str | None]
    ) -> torch.Tensor:
        """Read whole prompts into the rows from ``first`` on, in one forward; logits [n, vocab] after each one's last.

        What pads the shorter ones lies behind their length, where it is masked until it is written over.
        """
        lengths = [len(ids) for ids in prompts]
        longest = max(lengths)
        self.adapters.choose(adapters)
        self._cache.reading_rows(first, len(prompts), longest)
        ids = torch.tensor([[*ids, *([ids[-1]] * (longest - len(ids)))] for ids in prompts])
        positions = torch.arange(longest)
        seen = positions <= positions.unsqueeze(1)
        ends = sorted({length - 1 for length in lengths})
        every = positions.expand(len(prompts), longest)
        logits = self._forward(ids, every, seen[None, None], torch.tensor(ends))
        return logits[torch.arange(len(prompts)), torch.tensor([ends.index(length - 1) for length in lengths])]

    def join(self, row: int, length: int) -> None:
        """The staging row, ``length`` tokens long, becomes decoding row ``row``."""
        self._cache.move(self._cache.staging, row, length)

    def move(self, row: int, target: int, length: int) -> None:
        """Row ``row``, ``length`` tokens long, becomes row ``target``."""
        if row != target:
            self._cache.move(row, target, length)

    def clear(self, row: int) -> None:
        """Row ``row`` may hold values that are not finite: zero it."""
        self._cache.clear(row)

    def leave(self, row: int, last: int, last_length: int, *, broken: bool) -> None:
        """Row ``row`` is done and row ``last`` takes its place; ``broken`` when its values may not be finite."""
        if broken:
            self.clear(row)
            self.discard()
        self.move(last, row, last_length)

    def discard(self) -> None:
        """Clear the staging row after a prompt that could not be read."""
        self._cache.clear(self._cache.staging)

    def decode(self, tokens: list[int], lengths: list[int], adapters: list[str | None]) -> torch.Tensor:
        """Add one token to each of the rows 0..n-1; logits [n, vocab]."""
        self.adapters.choose(adapters)
        self._cache.decoding(lengths)
        positions = torch.tensor(lengths).unsqueeze(1)
        seen = torch.arange(max(lengths) + 1) <= positions
        return self._forward(torch.tensor(tokens).unsqueeze(1), positions, seen[:, None, None])[:, -1]

    def teacher_forced(self, prompt_ids: list[int], answer_ids: list[int], adapter: str | None) -> torch.Tensor:
        """Log-softmax [len(answer), vocab] in float32 before each answer token: alone, one forward, no cache."""
        self.adapters.choose([adapter])
        ids = torch.tensor([[*prompt_ids, *answer_ids[:-1]]])
        with torch.inference_mode():
            logits = self._model(input_ids=ids, use_cache=False, logits_to_keep=len(answer_ids)).logits
            result = torch.log_softmax(logits[0].float(), -1)
        return result.clone()

    def _forward(
        self, ids: torch.Tensor, positions: torch.Tensor, seen: torch.Tensor, keep: int | torch.Tensor = 1
    ) -> torch.Tensor:
        mask = torch.zeros(seen.shape, dtype=self._dtype).masked_fill_(~seen, torch.finfo(self._dtype).min)
        with torch.inference_mode():
            logits: torch.Tensor = self._model(
                input_ids=ids,
                position_ids=positions,
                attention_mask=mask,
                use_cache=True,
                logits_to_keep=keep,
                **{self._cache_name: self._cache},
            ).logits
        return logits


def _own_memory(_head: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The last positions as a tensor of their own.

    As a slice of the whole prompt they have strides for which torch copies the head's weights into a batched product:
    80 of the 128 ms that reading a 44-token prompt took on a 135M model.
    """
    hidden, *rest = inputs
    return (hidden.clone(memory_format=torch.contiguous_format), *rest)


def _check(config: Any, max_context: int, model: ModelDir) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None)
    sliding = kinds == {"full_attention", "sliding_attention"} or kinds == {"sliding_attention"}
    if kinds != {"full_attention"} and not (sliding and window and max_context <= window):
        raise ModelUnavailable(
            f"{model.path}: layers of kind {', '.join(sorted(kinds))} need more than full attention; the engine "
            + (f"serves this model up to max_context {window}" if sliding else "cannot serve this model")
        )
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in LENGTH_DEPENDENT_ROPE:
        original = rope.get("original_max_position_embeddings") or config.max_position_embeddings
        if max_context > original:
            raise ModelUnavailable(
                f"{model.path}: {rope['rope_type']} positions change with the length of a neighbour's text; "
                f"the embedded engine serves this model up to max_context {original}"
            )
