"""The mean of rows, after those that are far longer than usual have been shortened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from torch import Tensor
from torch.linalg import vector_norm

from fedkge.aggregation.base import AGGREGATIONS, Aggregation
from fedkge.aggregation.mean import Mean
from fedkge.errors import ConfigError
from fedkge.exchange.rows import Rows


@AGGREGATIONS.register("bounded")
@dataclass(frozen=True)
class Bounded(Aggregation):
    """One of n owners can move a row by an n-th of `factor` times the typical norm, and no further.

    The typical norm is the median over sites of each site's median row norm in that round. Of an even number
    of sites, the lower of the two in the middle counts. Less than half of the sites cannot move it beyond the
    others', however many rows they send and however long these are. Shorter rows count as they are. A site
    can still turn a row: only `median` and `trimmed` outvote it, where a row has three owners or more.
    """

    averages: ClassVar[bool] = True
    factor: float = 2.0  #: shortens rows that are longer than this many times the typical norm
    limit: float | None = None  #: the longest norm itself, instead of `factor`

    def __post_init__(self) -> None:
        if not self.factor > 0:
            raise ConfigError(f"factor: expected a number above 0, got {self.factor}")
        if self.limit is not None and not self.limit > 0:
            raise ConfigError(f"limit: expected a number above 0, got {self.limit}")

    def longest(self, rows: Mapping[str, Rows]) -> float:
        if self.limit is not None:
            return self.limit
        typical = sorted(_middle(norms(of.values)) for of in rows.values() if len(of))
        return self.factor * typical[(len(typical) - 1) // 2] if typical else inf

    def combined(
        self, rows: Mapping[str, Rows], size: int, longest: float | None = None
    ) -> tuple[Tensor, Tensor]:
        bound = self.longest(rows) if longest is None else longest
        return Mean().combined(limited(rows, bound), size)


def limited(rows: Mapping[str, Rows], longest: float) -> dict[str, Rows]:
    """Rows that are longer are scaled to this norm, the others are as they were."""
    return {site: _shortened(of, longest) for site, of in rows.items()} if longest < inf else dict(rows)


def norms(values: Tensor) -> Tensor:
    """The norm [n] of each row, in float64: squares of the largest float32 numbers are not finite."""
    found = vector_norm(values, dim=1).double()
    huge = found.isinf().nonzero()[:, 0]
    return found.index_copy(0, huge, vector_norm(values[huge].double(), dim=1)) if len(huge) else found


def _middle(norms: Tensor) -> float:
    """The lower median."""
    return float(norms.sort().values[(len(norms) - 1) // 2])


def _shortened(rows: Rows, longest: float) -> Rows:
    norm = norms(rows.values)
    long = (norm > longest).nonzero()[:, 0]
    if not len(long):
        return rows
    shorter = rows.values[long].double() * (longest / norm[long, None])
    return Rows(rows.ids, rows.values.index_copy(0, long, shorter.to(rows.values.dtype)), rows.support)
