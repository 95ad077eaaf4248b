"""The mean of the rows that came, each counting once: FedE's rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedkge.aggregation.base import AGGREGATIONS, Aggregation
from fedkge.exchange.rows import Rows


@AGGREGATIONS.register("mean")
@dataclass(frozen=True)
class Mean(Aggregation):
    """One site can move a mean as far as it likes: use it where every site is trusted."""

    sums: ClassVar[bool] = True
    averages: ClassVar[bool] = True

    def combined(
        self, rows: Mapping[str, Rows], size: int, longest: float | None = None
    ) -> tuple[Tensor, Tensor]:
        total, owners = summed(rows, size)
        return total / owners.clamp_min(1)[:, None], owners


def summed(rows: Mapping[str, Rows], size: int) -> tuple[Tensor, Tensor]:
    """For every id below `size` the sum [size, width] of its rows, and how many [size] there are.

    Adds site by site in the order of their names, so that the sum does not depend on who answered first.
    """
    first = next(iter(rows.values())).values
    total, owners = first.new_zeros(size, first.shape[1]), first.new_zeros(size)
    for site in sorted(rows):
        total[rows[site].ids] += rows[site].values  # ids do not repeat; index_add_ would be slow on a CPU
        owners[rows[site].ids] += 1
    return total, owners
