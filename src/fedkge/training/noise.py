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
from fedkge.kernels import Adam as AdamOptions
from fedkge.kernels import Debt, Pace, backend
from fedkge.models import Gradient, Model
from fedkge.training.optimizers import SGD, Adam


class Noise:
    """Noise on every row of one table's gradient, each step; by `stepping` Adam adds it where it steps."""

    def __init__(
        self, gradient: Gradient, model: Model, axis: Axis, stepping: NoisyAdam | None = None
    ) -> None:
        table = gradient.table
        self.gradient, self.stepping = gradient, stepping
        self.rows = torch.arange(len(table), device=table.device)
        self.fixed = fixed_columns(model, axis).to(table.device)
        summed = gradient.dense is None and stepping is None
        self._buffer = torch.zeros_like(table) if summed else None

    def begin(self) -> None:
        """Have the gradient summed up, for noise to be added to."""
        if self._buffer is not None:
            self.gradient.dense = self._buffer

    def end(self) -> None:
        """Have it as factors again, where it was before."""
        if self._buffer is not None:
            self.gradient.dense = None

    def add(self, key: Tensor, scale: Tensor, touched: Tensor | None = None) -> None:
        """Add `scale` [1] times numbers drawn by `key` [1]; with `touched`, to these rows alone."""
        if self.stepping is not None:
            self.stepping.noise = key, scale
            return
        dense = self.gradient.dense
        assert dense is not None, "between begin and end"
        kernels = backend(dense.device)
        if touched is None:
            kernels.add_noise_(dense, key, self.rows, scale.expand(len(dense)))
        else:
            noise = dense.new_zeros(len(touched), dense.shape[1])
            kernels.add_noise_(noise, key, touched, scale.expand(len(touched)))
            dense.index_add_(0, touched, noise)
        if len(self.fixed):
            dense.index_fill_(1, self.fixed, 0)


class NoisyAdam(Adam):
    """Adam whose next step has `noise` on every row's gradient: none of the table's size exists."""

    def __init__(self, table: Tensor, rate: float) -> None:
        super().__init__(table, rate)
        self.noise: tuple[Tensor, Tensor] | None = None  # key [1], scale [1]

    def step(self, gradient: Gradient, pace: Pace) -> None:
        noise, self.noise = self.noise, None
        arguments = (self.state["m"], self.state["v"], pace, AdamOptions(self.rate), noise)
        backend(self.table.device).adam_whole_(self.table, gradient.take(), *arguments)


class LazyNoise:
    """Noise that is owed to the rows of one table until they are read; of plain gradient descent alone."""

    def __init__(self, table: Tensor, model: Model, axis: Axis, rate: float) -> None:
        self.table = table
        key, taken = torch.zeros(2, 1, dtype=torch.int64, device=table.device)
        moves = torch.ones(table.shape[1], dtype=torch.bool)
        moves[fixed_columns(model, axis)] = False
        given = taken.new_zeros(len(table))
        self.debt = Debt(key, table.new_zeros(1), rate, taken, given, moves.to(table.device))

    def owe(self, key: Tensor, scale: Tensor) -> None:
        """One more step has noise: `scale` [1], the same for every step between two calls of `settle_all`."""
        self.debt.key.copy_(key)
        self.debt.scale.copy_(scale)
        self.debt.taken.add_(1)

    def settle(self, rows: Tensor) -> None:
        """Give these rows what they are owed, by the key of the last step: no row takes it twice."""
        backend(self.table.device).settle_(self.table, self.debt, rows)

    def settle_all(self) -> None:
        """Before anyone looks at the table."""
        backend(self.table.device).settle_(self.table, self.debt)
        self.debt.given.zero_()
        self.debt.taken.zero_()


class RowSGD(SGD):
    """Plain gradient descent that steps touched rows alone: the others have no gradient."""

    rows_only = True

    def step(self, gradient: Gradient, pace: Pace) -> None:
        backend(self.table.device).sgd_touched_(self.table, gradient.take(), self.rate)


def fixed_columns(model: Model, axis: Axis) -> Tensor:
    """The columns of a table that no step moves: blocks that the model reads and does not train."""
    names: Mapping[str, int] = model.blocks[axis]
    flags = [name in model.untrained for name, width in names.items() for _ in range(width)]
    return torch.tensor(flags).nonzero()[:, 0]
