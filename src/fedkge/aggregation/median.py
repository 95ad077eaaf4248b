"""The median of each number over the sites that sent the row (Yin et al., ICML 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedkge.aggregation.base import AGGREGATIONS
from fedkge.aggregation.ordered import Ordered, ordered


@AGGREGATIONS.register("median")
@dataclass(frozen=True)
class Median(Ordered):
    """Less than half of a row's owners cannot move it beyond what the others sent.

    Of an even number of owners it is the mean of the two in the middle. Rows with one or two owners are
    averaged as by `bounded`: those longer than `factor` times the typical norm are shortened first.
    """

    def among(self, rows: Tensor) -> Tensor:
        found, middle = ordered(rows), len(rows) // 2
        return found[middle] if len(rows) % 2 else (found[middle - 1] + found[middle]) / 2
