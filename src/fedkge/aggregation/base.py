"""What a rule of aggregation is: it makes one row of all that sites sent for the same id."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import inf
from typing import ClassVar

from torch import Tensor

from fedkge.exchange.rows import Rows
from fedkge.registry import Registry

AGGREGATIONS: Registry[Aggregation] = Registry("aggregation", "fedkge.aggregation")


class Aggregation(ABC):
    """How the hub combines rows. The order of sites does not matter, each site counts once."""

    sums: ClassVar[bool] = False  #: sums of rows, and how many they are, suffice; else it needs single rows
    averages: ClassVar[bool] = False  #: a mean of rows that are at most `longest`: a method may weigh these

    def longest(self, rows: Mapping[str, Rows]) -> float:
        """The longest norm with which a row of this round counts; infinite: rows count as they are."""
        return inf

    @abstractmethod
    def combined(
        self, rows: Mapping[str, Rows], size: int, longest: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """For every id below `size` the aggregate [size, width] of its rows, and how many [size] there are.

        Where nobody sent a row, the aggregate is 0. If `rows` are only some of those that came in a round,
        `longest` is that of the whole round.
        """
