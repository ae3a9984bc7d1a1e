"""Keys and values of the running rows: one buffer per layer, so that a decode forward copies nothing.

Rows 0..n-1 are decoding; one more row beyond the last is where a prompt is read before it joins them. The buffers hold
[rows, positions, heads * head_dim] in memory and grow in length when a row needs it. What lies behind a row's length
is masked; it must only be finite, so new space is zeroed.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache

GRANULE = 256
"""Positions by which the buffers grow."""


class RowCache(Cache):
    """The cache that the model's forward reads and writes; `reading` and `decoding` say for which rows."""

    def __init__(self, *, layers: int, rows: int, heads: int, head_dim: int, limit: int, dtype: torch.dtype) -> None:
        super().__init__(layers=[])
        self._heads, self._head_dim, self._limit, self._dtype = heads, head_dim, limit, dtype
        self._rows = rows + 1
        self._capacity = min(GRANULE, limit)
        self._keys = [self._empty(self._capacity) for _ in range(layers)]
        self._values = [self._empty(self._capacity) for _ in range(layers)]
        self._first, self._count, self._length = 0, 0, 0
        self._where = torch.empty(0, dtype=torch.int64)

    @property
    def staging(self) -> int:
        """The row in which prompts are read."""
        return self._rows - 1

    def reading(self, start: int, count: int) -> None:
        """The coming forward reads ``count`` prompt tokens at position ``start`` into the staging row."""
        self._reserve(start + count)
        begin = self.staging * self._capacity + start
        self._first, self._count, self._length = self.staging, 1, start + count
        self._where = torch.arange(begin, begin + count)

    def reading_rows(self, first: int, count: int, longest: int) -> None:
        """The coming forward reads ``count`` whole prompts, padded to ``longest``, into the rows from ``first`` on."""
        self._reserve(longest)
        self._first, self._count, self._length = first, count, longest
        begins = torch.arange(first, first + count).unsqueeze(1) * self._capacity
        self._where = (begins + torch.arange(longest)).flatten()

    def decoding(self, lengths: list[int]) -> None:
        """The coming forward adds one token to each of the rows 0..n-1, which have ``lengths`` tokens so far."""
        longest = max(lengths) + 1
        self._reserve(longest)
        self._first, self._count, self._length = 0, len(lengths), longest
        self._where = torch.tensor([row * self._capacity + length for row, length in enumerate(lengths)])

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store [rows, heads, tokens, dim] and give back all [rows, heads, length, dim] of the chosen rows."""
        return (
            self._store(self._keys[layer_idx], key_states),
            self._store(self._values[layer_idx], value_states),
        )

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of one row over another."""
        for buffer in (*self._keys, *self._values):
            buffer[target, :length] = buffer[source, :length]

    def clear(self, row: int) -> None:
        """Zero a row whose values may not be finite, so that its next user, who only masks them, is safe."""
        for buffer in (*self._keys, *self._values):
            buffer[row].zero_()

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions in use, as transformers asks for it."""
        return self._length

    def _store(self, buffer: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        width = self._heads * self._head_dim
        buffer.view(-1, width).index_copy_(0, self._where, states.transpose(1, 2).reshape(-1, width))
        rows = buffer[self._first : self._first + self._count, : self._length]
        return rows.view(self._count, self._length, self._heads, self._head_dim).transpose(1, 2)

    def _reserve(self, length: int) -> None:
        if length <= self._capacity:
            return
        capacity = min(self._limit, max(2 * self._capacity, -(-length // GRANULE) * GRANULE))
        for buffers in (self._keys, self._values):
            for layer, old in enumerate(buffers):
                buffers[layer] = self._empty(capacity)
                buffers[layer][:, : self._capacity] = old
        self._capacity = capacity

    def _empty(self, capacity: int) -> torch.Tensor:
        return torch.zeros(self._rows, capacity, self._heads * self._head_dim, dtype=self._dtype)
