"""How long the terms of gradients are, from above: what clipping cuts by.

A row's part of a triple's gradient is a sum of terms. In exact arithmetic a term that compares a query with a
candidate has a length that is known; rounding can make it, and the sum, longer by `relative` at most.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedkge.kernels.base import Contribution, Similarity
from fedkge.kernels.dispatch import backend


def relative(table: Tensor, terms: int) -> float:
    """Half an epsilon for each addition, for each within a distance that a term is divided by, and 8 more."""
    return (terms + table.shape[1] + 8) * torch.finfo(table.dtype).eps / 2


def scaled(rows: Tensor, factors: Tensor, times: bool = True) -> Tensor:
    """Rows [b * k, w] times the factor [b] of their triple, or as they are; 0 where the factor is 0.

    NaN is left out too. A GPU is not asked whether there are such factors.
    """
    if rows.is_cuda:
        from fedkge.kernels.gpu import norms

        return norms.scaled(rows, factors, times)
    each = factors.repeat_interleave(len(rows) // max(len(factors), 1))[:, None]
    none = each == 0
    found = rows * each if times else rows
    return found.masked_fill(none, 0.0) if none.any() else found


def reach(part: Contribution) -> Tensor | float:
    """The length of d similarity / d candidate: of each query [b, 1], or of all."""
    if part.kind is Similarity.DOT:
        return backend(part.query.device).lengths(part.query.detach())[:, None]
    width = part.query.shape[1]
    square = {Similarity.L1: width, Similarity.L2: 1, Similarity.MODULUS: width / 2}[part.kind]
    return float(square**0.5)


def directed(part: Contribution) -> Tensor:
    """The slopes [b, n] without those of distances too small to divide by: squares of these underflow.

    A gradient by a Euclidean distance is the difference over the distance. Where that was rounded to
    nearly nothing, the quotient could be longer than 1.
    """
    if part.kind is not Similarity.L2:
        return part.d_scores
    limits = torch.finfo(part.scores.dtype)
    return torch.where(part.scores < -((limits.tiny / limits.eps**2) ** 0.5), part.d_scores, 0.0)
