"""Token rows to padded tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """One tokenised example.

    Args:
        ids: prompt and completion.
        learned: for each id, whether the model is to learn to emit it. The first id can never be learned.
        weight: the example's weight, at least 0.
    """

    ids: tuple[int, ...]
    learned: tuple[bool, ...]
    weight: float = 1.0

    @property
    def learned_tokens(self) -> int:
        """How many tokens of the row carry loss."""
        return sum(self.learned[1:])


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right, and the flat list of the positions that carry loss.

    Causal attention never looks to the right, so padding needs neither a mask nor care: no position that is read
    depends on it.

    Args:
        ids: [rows, width] int64.
        rows: [learned tokens] int64, the row of each learned token.
        columns: [learned tokens] int64, the position whose output predicts it (the one before it).
        targets: [learned tokens] int64, its id.
        weights: [learned tokens] float32, its example's weight.
        tokens: ids that are not padding.
    """

    ids: Tensor
    rows: Tensor
    columns: Tensor
    targets: Tensor
    weights: Tensor
    tokens: int


def collate(rows: Sequence[Row], device: torch.device | str = "cpu") -> Batch:
    """Pad rows to the longest. Raises ValueError when no token of any row is learned."""
    width = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.int64)
    learned = torch.zeros(len(rows), width, dtype=torch.bool)
    for index, row in enumerate(rows):
        if len(row.ids) != len(row.learned):
            raise ValueError(f"row {index} has {len(row.ids)} ids and {len(row.learned)} learned marks")
        ids[index, : len(row.ids)] = torch.tensor(row.ids, dtype=torch.int64)
        learned[index, : len(row.learned)] = torch.tensor(row.learned, dtype=torch.bool)
    where, columns = learned[:, 1:].nonzero(as_tuple=True)
    if not len(where):
        raise ValueError(f"none of the {len(rows)} rows has a learned token after its first")
    weights = torch.tensor([row.weight for row in rows], dtype=torch.float32)[where]
    return Batch(
        ids=ids.to(device),
        rows=where.to(device),
        columns=columns.to(device),
        targets=ids[where, columns + 1].to(device),
        weights=weights.to(device),
        tokens=sum(len(row.ids) for row in rows),
    )
