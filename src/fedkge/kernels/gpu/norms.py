"""Norms of single statements' gradients, from the [b, n] matrices of scores alone, in plain torch.

A row's part of a statement's gradient is the sum of its `d_scores` times one direction, whose length is
known; sorting a statement's candidates brings equal ones together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedkge.kernels import reference
from fedkge.kernels.base import Contribution, Similarity


def squares(table: Tensor, part: Contribution) -> Tensor:
    found = part.d_scores.double()
    if part.kind is not Similarity.DOT:  # at zero distance there is no direction
        found = torch.where(part.scores == 0, 0.0, found)
    total = _length(part) * _merged(part.index, found)
    if len(part.ids):
        total += part.values.double().square().sum(-1)
        both = torch.where(part.index == part.ids[:, None], found, 0.0).sum(-1)
        total += 2 * both * _along(part.kind, part.query, table[part.ids], part.values).double()
    return total.clamp_min(0).to(table.dtype)


def _length(part: Contribution) -> Tensor | float:
    """The squared length of d similarity / d candidate, of all candidates of a query."""
    if part.kind is Similarity.DOT:
        return part.query.double().square().sum(-1)
    width = part.query.shape[1]
    return {Similarity.L1: width, Similarity.L2: 1, Similarity.MODULUS: width // 2}[part.kind]


def _merged(index: Tensor, d_scores: Tensor) -> Tensor:
    """The sum [b] over distinct rows of (the sum of a row's d_scores) squared."""
    b, n = index.shape
    ordered, order = index.sort(-1)
    new = torch.zeros_like(ordered)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    place = new.cumsum(-1) + torch.arange(b, device=index.device)[:, None] * n
    sums = d_scores.new_zeros(b * n).index_add_(0, place.flatten(), d_scores.gather(-1, order).flatten())
    return sums.view(b, n).square().sum(-1)


def _along(kind: Similarity, query: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """d similarity(query, row) / d row times `values`, [b]."""
    ones = query.new_ones(len(query), 1)
    with torch.enable_grad():
        leaf = rows.detach().requires_grad_()
        scores = reference.compare(kind, query.detach()[:, None], leaf[:, None])
        (direction,) = torch.autograd.grad(scores, leaf, ones)
    return (direction * values).sum(-1)
