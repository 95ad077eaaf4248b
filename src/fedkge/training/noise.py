"""Gaussian noise on rows: on all of them, on those that a batch touches, or on all of them but later.

Plain gradient descent moves a row that no batch touches by noise alone, and a sum of independent Gaussian
numbers is one: so what several steps owe a row can be added when the row is next read, `sqrt(steps)` times as
large. Nobody can tell the difference, and a step costs what its batch costs, however large the table is.
Adam and AdaGrad scale the noise of each step by the ones before it, and need it at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import Turn, backend
from fedkge.models import Gradient, Model
from fedkge.training.optimizers import SGD


class Noise:
    """Noise on every row of one table's gradient, each step."""

    def __init__(self, gradient: Gradient, model: Model, axis: Axis) -> None:
        table = gradient.table
        self.gradient = gradient
        self.rows = torch.arange(len(table), device=table.device)
        self.fixed = fixed_columns(model, axis).to(table.device)
        self.key = torch.zeros(1, dtype=torch.int64, device=table.device)
        self._buffer = torch.zeros_like(table) if gradient.dense is None else None

    def aim(self, key: int) -> None:
        """Have the next step draw by this key."""
        self.key.fill_(signed(key))

    def begin(self) -> None:
        """Have the gradient summed up, for noise to be added to."""
        if self._buffer is not None:
            self.gradient.dense = self._buffer

    def end(self) -> None:
        """Have it as factors again, where it was before."""
        if self._buffer is not None:
            self.gradient.dense = None

    def add(self, scale: Tensor, touched: Tensor | None = None) -> None:
        """Add `scale` [1] times standard normal numbers; with `touched`, to these rows alone."""
        dense = self.gradient.dense
        assert dense is not None, "between begin and end"
        kernels = backend(dense.device)
        if touched is None:
            kernels.add_noise_(dense, self.key, self.rows, scale.expand(len(dense)))
        else:
            noise = dense.new_zeros(len(touched), dense.shape[1])
            kernels.add_noise_(noise, self.key, touched, scale.expand(len(touched)))
            dense.index_add_(0, touched, noise)
        if len(self.fixed):
            dense[:, self.fixed] = 0


class LazyNoise:
    """Noise that is owed to the rows of one table until they are read; of plain gradient descent alone."""

    def __init__(self, table: Tensor, model: Model, axis: Axis, rate: float) -> None:
        self.table, self.rate = table, rate
        self.fixed = fixed_columns(model, axis).to(table.device)
        self.given = torch.zeros(
            len(table), dtype=torch.int64, device=table.device
        )  # steps whose noise it has
        self.steps = 0
        self.key = torch.zeros(1, dtype=torch.int64, device=table.device)
        self._next = torch.zeros_like(self.key)
        self.scale = table.new_zeros(1)

    def aim(self, key: int) -> None:
        """Have the next step draw by this key."""
        self._next.fill_(signed(key))

    def owe(self, scale: Tensor) -> None:
        """One more step has noise: `scale` [1], the same for every step between two calls of `settle_all`."""
        self.key.copy_(self._next)
        self.scale.copy_(scale)
        self.steps += 1

    def settle(self, rows: Tensor) -> None:
        """Give these distinct rows what they are owed, by the key of the last step: no row takes it twice."""
        steps = self.steps - self.given[rows]
        noise = self.table.new_zeros(len(rows), self.table.shape[1])
        size = steps.to(self.table.dtype).sqrt() * self.scale * -self.rate
        backend(self.table.device).add_noise_(noise, self.key, rows, size)
        if len(self.fixed):
            noise[:, self.fixed] = 0
        self.table.index_add_(0, rows, noise)
        self.given[rows] = self.steps

    def settle_all(self) -> None:
        """Before anyone looks at the table."""
        self.settle(torch.arange(len(self.table), device=self.table.device))
        self.given.zero_()
        self.steps = 0


class RowSGD(SGD):
    """Plain gradient descent that steps touched rows alone: the others have no gradient."""

    rows_only = True

    def step(self, gradient: Gradient, turn: Turn) -> None:
        rows, values = backend(self.table.device).touched(self.table, gradient.take())
        self.table.index_add_(0, rows, values, alpha=-self.rate)


def fixed_columns(model: Model, axis: Axis) -> Tensor:
    """The columns of a table that no step moves: blocks that the model reads and does not train."""
    names: Mapping[str, int] = model.blocks[axis]
    flags = [name in model.untrained for name, width in names.items() for _ in range(width)]
    return torch.tensor(flags).nonzero()[:, 0]


def signed(key: int) -> int:
    """A 64-bit key as the int64 of the same bits."""
    return key - (1 << 64) if key >> 63 else key
