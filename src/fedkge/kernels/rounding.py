"""How much longer rounding can make a triple's gradient than it is in exact arithmetic.

A row's part of a gradient is a sum over candidates. Its terms may cancel, their errors do not: the error is
at most `relative` times the sum of the terms' lengths, and a norm that is to bound what is really added to a
table counts it in.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedkge.kernels.base import Contribution, Similarity


def relative(table: Tensor, candidates: int) -> float:
    """Half an epsilon for each addition, for each within a distance that a term is divided by, and 8 more."""
    return (candidates + table.shape[1] + 8) * torch.finfo(table.dtype).eps / 2


def lengths(part: Contribution) -> Tensor:
    """The sum of the lengths of each triple's terms [b], of those that compare query and candidates."""
    query, width = part.query, part.query.shape[1]
    if part.kind is Similarity.DOT:
        reach = query.norm(dim=-1)
    else:
        square = {Similarity.L1: width, Similarity.L2: 1, Similarity.MODULUS: width / 2}[part.kind]
        reach = query.new_full(query.shape[:1], square**0.5)
    slopes = part.d_scores if part.kind is Similarity.DOT else part.d_scores * (part.scores != 0)
    return reach * slopes.abs().sum(-1)
