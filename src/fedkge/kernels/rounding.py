"""How long the terms of gradients are, from above: what clipping cuts by.

A row's part of a triple's gradient is a sum of terms. In exact arithmetic a term that compares a query with a
candidate has a length that is known; rounding can make it, and the sum, longer by `relative` at most.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedkge.kernels.base import Contribution, Similarity


def relative(table: Tensor, terms: int) -> float:
    """Half an epsilon for each addition, for each within a distance that a term is divided by, and 8 more."""
    return (terms + table.shape[1] + 8) * torch.finfo(table.dtype).eps / 2


def length(rows: Tensor) -> Tensor:
    """The norms [n] of rows [n, w]; squares of float32 neither overflow nor underflow."""
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64).to(rows.dtype)


def reach(part: Contribution) -> Tensor:
    """The length [b, 1] of d similarity / d candidate, of each query."""
    query, width = part.query, part.query.shape[1]
    if part.kind is Similarity.DOT:
        return length(query)[:, None]
    square = {Similarity.L1: width, Similarity.L2: 1, Similarity.MODULUS: width / 2}[part.kind]
    return query.new_full((len(query), 1), square**0.5)


def directed(part: Contribution) -> Tensor:
    """The slopes [b, n] without those of distances too small to divide by: squares of these underflow.

    A gradient by a Euclidean distance is the difference over the distance. Where that was rounded to
    nearly nothing, the quotient could be longer than 1.
    """
    if part.kind is not Similarity.L2:
        return part.d_scores
    limits = torch.finfo(part.scores.dtype)
    return torch.where(part.scores < -((limits.tiny / limits.eps**2) ** 0.5), part.d_scores, 0.0)
