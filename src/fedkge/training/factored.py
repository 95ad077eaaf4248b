"""Rows trained as factors of their change (FedE-SVD+, a rival in FedS, 2024): `row = base + U diag(s) V`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedkge.kernels import Pace
from fedkge.models import Gradient
from fedkge.training.optimizers import Optimizer

FULL = 1e-6  #: share of a change that is added to its diagonal, so that every factor has a direction


@dataclass(frozen=True, slots=True)
class Factoring:
    """How the last epoch of a round trains the shared rows of a table."""

    columns: int  #: a row's change is folded into a matrix of so many
    alpha: (
        float  #: of `alpha / columns^2 (||U^T U - I||^2 + ||V V^T - I||^2)`, added to the loss for every row
    )


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows of a table whose change is trained as factors."""

    how: Factoring
    base: Tensor  # [rows of the table, w]: what changes are counted from
    rows: Tensor  # int64 [n], ascending


def folded(rows: Tensor, columns: int) -> Tensor:
    """Rows [n, w] as matrices [n, ⌈w / columns⌉, columns], filled up with zeros."""
    return pad(rows, (0, -rows.shape[1] % columns)).unflatten(1, (-1, columns))


def decomposed(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`U [n, m, k], s [n, k], V [n, k, c]` of finite matrices [n, m, c], largest first; k = min(m, c).

    V are the eigenvectors of `M^T M`, in float64, so that squaring loses nothing; `U s = M V^T`. Torch's own
    takes matrices of more than 32 lines one by one on a GPU. Where s is 0, so is U.
    """
    wide = matrix.double()
    kept = min(matrix.shape[1:])
    v = torch.linalg.eigh(wide.mT @ wide).eigenvectors[..., -kept:].flip(-1)
    us = wide @ v
    s = us.norm(dim=1)
    u = us / torch.where(s > 0, s, 1)[:, None]
    return u.to(matrix.dtype), s.to(matrix.dtype), v.mT.to(matrix.dtype)


class Factored:
    """Some rows of a table, of one site or of several laid one after another, in their last epoch.

    The factors are tables as any other: one line per row, stepped by the trainer's kind of optimizer, new
    each time. They last for an epoch, so that no checkpoint needs them.
    """

    def __init__(
        self,
        changes: Changes,
        table: Tensor,
        ends: Tensor,  # int64 [s]: where each site's rows of the table end
        optimizer: tuple[type[Optimizer], float],
    ) -> None:
        how, rows = changes.how, changes.rows
        self.how, self.rows, self.base, self.table = how, rows, changes.base, table
        n, lines = len(rows), -(-table.shape[1] // how.columns)
        self.shape = n, lines, min(lines, how.columns), how.columns
        kept = self.shape[2]
        self.factors = [table.new_zeros(n, width) for width in (lines * kept, kept, kept * how.columns)]
        kind, rate = optimizer
        self.optimizers = [kind(factor, rate) for factor in self.factors]
        self.gradients = [Gradient(factor, False) for factor in self.factors]
        self.ends = torch.searchsorted(rows, ends)
        self.owner = torch.searchsorted(ends, rows, right=True)
        self.steps = torch.zeros_like(ends)

    def begin(self) -> None:
        """Take the change so far apart."""
        change = self.table[self.rows] - self.base[self.rows]
        finite = torch.isfinite(change).all(1, keepdim=True)  # a site that diverged is known by its loss
        matrix = folded(torch.where(finite, change, 0), self.how.columns)
        some = FULL * matrix.abs().amax((1, 2), keepdim=True) + torch.finfo(matrix.dtype).tiny
        matrix = matrix + some * torch.eye(*matrix.shape[1:], dtype=matrix.dtype, device=matrix.device)
        for factor, found in zip(self.factors, decomposed(matrix), strict=True):
            factor.copy_(found.flatten(1))
        self.steps.zero_()
        for optimizer in self.optimizers:
            optimizer.restart()

    def step(self, gradient: Tensor, active: Tensor) -> None:
        """Step the factors of the active sites' rows, given the rows' gradient [n, w]; write the rows."""
        self.steps += active
        for of, found in zip(self.gradients, self._pulled(gradient), strict=True):
            assert of.dense is not None
            of.dense.copy_(found.flatten(1))
        for optimizer, of in zip(self.optimizers, self.gradients, strict=True):
            optimizer.step(of, Pace(self.ends, self.steps, active))
        u, s, v = self._parts()
        width = self.table.shape[1]
        new = self.base[self.rows] + ((u * s[:, None]) @ v).flatten(1)[:, :width]
        self.table.index_copy_(
            0, self.rows, torch.where(active[self.owner, None], new, self.table[self.rows])
        )

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        n, lines, kept, columns = self.shape
        u, s, v = self.factors
        return u.view(n, lines, kept), s, v.view(n, kept, columns)

    def _pulled(self, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of U, s and V: of the loss by the chain rule, and of the term that holds them.

        `d ||U^T U - I||^2 / dU = 4 U (U^T U - I)`, and the same for V^T.
        """
        u, s, v = self._parts()
        g = folded(gradient, self.how.columns)
        g_v = g @ v.mT  # [n, lines, kept]
        one = torch.eye(self.shape[2], dtype=u.dtype, device=u.device)
        weight = 4 * self.how.alpha / self.how.columns**2
        d_u = g_v * s[:, None] + weight * (u @ (u.mT @ u - one))
        d_v = (u * s[:, None]).mT @ g + weight * ((v @ v.mT - one) @ v)
        return d_u, (u * g_v).sum(1), d_v
