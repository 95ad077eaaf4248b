"""Similarities with candidates, and what gradients add to the rows that they touch, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from fedkge.kernels.base import Contribution, Similarity
from fedkge.kernels.comparing import compare


def forward(kind: Similarity, query: Tensor, table: Tensor, index: Tensor) -> Tensor:
    return compare(kind, query[:, None], table[index])


def all_scores(kind: Similarity, query: Tensor, table: Tensor) -> Tensor:
    """Similarities `[b, e]` of every row."""
    if kind is Similarity.DOT:
        return query @ table.T
    return compare(kind, query[:, None], table[None])


def backward_query(
    kind: Similarity, query: Tensor, table: Tensor, index: Tensor, scores: Tensor, d_scores: Tensor
) -> Tensor:
    with torch.enable_grad():
        leaf = query.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(forward(kind, leaf, table.detach(), index), leaf, d_scores)
    return gradient


def touched(table: Tensor, part: Contribution) -> tuple[Tensor, Tensor]:
    """The distinct rows that `part` touches, ascending, and their gradients."""
    rows, where = torch.cat((part.index.flatten(), part.ids)).unique(return_inverse=True)
    with torch.enable_grad():
        leaf = table[rows].detach().requires_grad_()
        places = where[: part.index.numel()].view_as(part.index)
        scores = forward(part.kind, part.query.detach(), leaf, places)
        (gradient,) = torch.autograd.grad(scores, leaf, part.d_scores)
    where = where[part.index.numel() :]
    gradient = gradient.index_add(0, where[: len(part.values)], part.values)
    if part.cubed is not None:
        slopes = part.cubed.new_zeros(len(rows)).index_add(0, where[len(part.values) :], part.cubed)
        gradient = gradient + cube_gradients(table, rows, slopes)
    return rows, gradient


def accumulate_(gradient: Tensor, table: Tensor, part: Contribution) -> None:
    """Add `part` to a dense gradient."""
    rows, values = touched(table, part)
    gradient.index_add_(0, rows, values)


def cubes(table: Tensor, ids: Tensor) -> Tensor:
    """|x|^3 summed over the numbers of rows [b]: what L3 keeps small."""
    rows = table[ids]
    return (rows.abs() * rows * rows).sum(-1)


def cube_gradients(table: Tensor, ids: Tensor, slopes: Tensor) -> Tensor:
    """The gradients [b, w] of `cubes`, times slopes [b]."""
    rows = table[ids]
    return (3 * slopes)[:, None] * rows.abs() * rows
