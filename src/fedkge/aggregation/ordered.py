"""Rules by the order of each number among a row's owners: what they share, and how rows are put in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from fedkge.aggregation.bounded import Bounded
from fedkge.exchange.rows import Rows

ENOUGH = 3  #: owners of whom one can be outvoted
BLOCK = 1 << 17  #: numbers of one owner that are put in order at a time: a CPU's cache holds those of several
GPU_BLOCK = 1 << 24


@dataclass(frozen=True)
class Ordered(Bounded):
    """A rule for rows with three owners or more. One of fewer cannot be outvoted: then as by `bounded`."""

    averages: ClassVar[bool] = False

    @abstractmethod
    def among(self, rows: Tensor) -> Tensor:
        """One row [n, width] of each [owners, n, width]."""

    def combined(
        self, rows: Mapping[str, Rows], size: int, longest: float | None = None
    ) -> tuple[Tensor, Tensor]:
        bound = self.longest(rows) if longest is None else longest
        owners = next(iter(rows.values())).values.new_zeros(size)
        for of in rows.values():
            owners[of.ids] += 1
        few = owners < ENOUGH
        aggregate, _ = super().combined({site: of[few[of.ids]] for site, of in rows.items()}, size, bound)
        for ids, several in _by_owners(rows, owners):
            aggregate[ids] = self.among(several)
        return aggregate, owners


def _by_owners(rows: Mapping[str, Rows], owners: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids [n] with enough owners, equally many each, and their rows [owners, n, width]; some at a time."""
    sites, like = sorted(rows), next(iter(rows.values())).values
    place = owners.new_full((len(sites), len(owners)), -1, dtype=torch.int64)  # of each id at each site
    for at, site in zip(place, sites, strict=True):
        at[rows[site].ids] = torch.arange(len(rows[site]), device=at.device)
    step = max(1, (GPU_BLOCK if like.is_cuda else BLOCK) // max(1, like.shape[1]))
    for count in owners[owners >= ENOUGH].unique().int().tolist():
        for ids in (owners == count).nonzero()[:, 0].split(step):
            found = like.new_empty(count * len(ids), like.shape[1])
            free = torch.arange(len(ids), device=ids.device)  # where the next row of each id belongs
            for at, site in zip(place, sites, strict=True):
                has = (at[ids] >= 0).nonzero()[:, 0]
                found.index_copy_(0, free[has], rows[site].values.index_select(0, at[ids[has]]))
                free[has] += len(ids)
            yield ids, found.unflatten(0, (count, len(ids)))


def ordered(rows: Tensor) -> list[Tensor]:
    """Every number of [owners, n, width] in ascending order over owners; overwrites `rows`.

    By a sorting network: a CPU does the few comparisons of whole rows ten times as fast as `torch.sort`.
    """
    lanes, spare = list(rows), torch.empty_like(rows[0])
    for i, j in _comparisons(len(rows)):
        torch.minimum(lanes[i], lanes[j], out=spare)
        torch.maximum(lanes[i], lanes[j], out=lanes[j])
        lanes[i], spare = spare, lanes[i]
    return lanes


@cache
def _comparisons(n: int) -> tuple[tuple[int, int], ...]:
    """Which two of n to compare and exchange in turn: Batcher's merge exchange (Knuth, vol. 3, 5.2.2 M)."""
    top = 1 << (n - 1).bit_length() >> 1
    pairs, p = [], top
    while p:
        q, r, d = top, 0, p
        while d:
            pairs += [(i, i + d) for i in range(n - d) if i & p == r]
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return tuple(pairs)
