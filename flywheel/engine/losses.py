"""Losses over the logits of learned tokens. Each says whether it sums or means: that decides the learning rate."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def weighted_nll_sum(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Sum over tokens of weight times negative log-likelihood.

    Args:
        logits: [tokens, vocabulary], any float type; the softmax is taken in float32.
        targets: [tokens], int64 ids.
        weights: [tokens], float32, the weight of the example that each token belongs to.

    Returns:
        A float32 scalar with gradient.
    """
    nll = F.cross_entropy(logits.float(), targets, reduction="none")
    return torch.dot(nll, weights)


def completion_loss(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """The supervised loss: ``weighted_nll_sum`` divided by the number of learned tokens.

    The division is by the count of tokens, not by the sum of weights: an example of weight 0.5 pulls half as hard
    wherever it is, also in a batch of nothing else. Shapes as in ``weighted_nll_sum``.
    """
    return weighted_nll_sum(logits, targets, weights) / targets.shape[0]
