"""The strict step of plain gradient descent as it once was: noise came after the rows were written.

Self-contained, so that the attack that broke it can be replayed for as long as there is this file. A step
wrote the clean sum into the rows it touched. The noise of k steps was added when a row was next read, and to
all rows at the end of an epoch, sqrt(k) times as large. In float32 both are rounded to the row's own grid.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class LazyDescent:
    """One table of float32 rows under plain gradient descent."""

    table: np.ndarray  # [rows, width]
    rate: float
    scale: float  #: standard deviation of one step's noise on a sum
    random: np.random.Generator
    taken: int = 0
    given: np.ndarray = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        self.given = np.zeros(len(self.table), int)

    def settle(self, rows: np.ndarray) -> None:
        """Give rows the noise that they are owed."""
        owed = np.sqrt(self.taken - self.given[rows])[:, None]
        noise = self.random.standard_normal((len(rows), self.table.shape[1]))
        self.table[rows] += (-self.rate * self.scale * owed * noise).astype(np.float32)
        self.given[rows] = self.taken

    def step(self, sums: np.ndarray) -> None:
        """One step by the clipped sums [rows, width]."""
        touched = np.flatnonzero(sums.any(1))
        self.settle(touched)
        self.table[touched] -= np.float32(self.rate) * sums[touched].astype(np.float32)
        self.taken += 1

    def end(self) -> np.ndarray:
        """What a hub is sent after an epoch."""
        self.settle(np.arange(len(self.table)))
        return self.table
