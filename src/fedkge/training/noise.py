"""One table's sum of clipped gradients, and Gaussian noise on it before anything else is done with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import backend
from fedkge.models import Gradient, Model


class NoisySum:
    """The sum of a private step's gradients of one table, row by row, whatever plain steps keep."""

    def __init__(self, gradient: Gradient, model: Model, axis: Axis) -> None:
        self.gradient = gradient
        self.fixed = fixed_columns(model, axis).to(gradient.table.device)
        self._buffer = torch.zeros_like(gradient.table) if gradient.dense is None else gradient.dense

    @contextmanager
    def open(self) -> Iterator[None]:
        """Have the gradient summed up, for noise to be added to; an optimizer's step clears it."""
        before, self.gradient.dense = self.gradient.dense, self._buffer
        try:
            yield
        finally:
            self.gradient.dense = before

    def add_noise(self, key: Tensor, scale: Tensor, touched: Tensor | None = None) -> None:
        """Noise of standard deviation `scale` [1] by key [4] on every row, or on `touched` (bool [rows]).

        Columns that no step moves get none.
        """
        kernels = backend(self._buffer.device)
        if touched is None:
            kernels.add_noise_(self._buffer, key, scale)
        else:
            rows = touched.nonzero()[:, 0]
            sums = self._buffer[rows]
            kernels.add_noise_(sums, key, scale)
            self._buffer[rows] = sums
        if len(self.fixed):
            self._buffer.index_fill_(1, self.fixed, 0)


def fixed_columns(model: Model, axis: Axis) -> Tensor:
    """The columns of a table that no step moves: blocks that the model reads and does not train."""
    names: Mapping[str, int] = model.blocks[axis]
    flags = [name in model.untrained for name, width in names.items() for _ in range(width)]
    return torch.tensor(flags).nonzero()[:, 0]
