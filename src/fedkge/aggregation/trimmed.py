"""The mean of each number over the sites that sent the row, without the ends (Yin et al., ICML 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedkge.aggregation.base import AGGREGATIONS
from fedkge.aggregation.ordered import Ordered, ordered
from fedkge.errors import ConfigError


@AGGREGATIONS.register("trimmed")
@dataclass(frozen=True)
class Trimmed(Ordered):
    """As many sites as are dropped at each end cannot move a row beyond what the others sent.

    For each number, the largest and the smallest `share` of the owners' values are dropped: rounded down, and
    at least one of each. Rows with one or two owners are averaged as by `bounded`: those longer than `factor`
    times the typical norm are shortened first.
    """

    share: float = 0.2  #: share of a row's owners that is dropped at each end; 0: none, the mean

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.share < 0.5:
            raise ConfigError(f"share: expected a number from 0 and below 0.5, got {self.share}")

    def dropped(self, owners: int) -> int:
        """How many of three owners or more are left out at each end; some are always left."""
        most = (owners - 1) // 2
        return min(most, max(1, int(self.share * owners))) if self.share else 0

    def among(self, rows: Tensor) -> Tensor:
        dropped = self.dropped(len(rows))
        first, *rest = ordered(rows)[dropped : len(rows) - dropped] if dropped else rows
        total = first.clone()
        for row in rest:
            total += row
        return total / (1 + len(rest))
