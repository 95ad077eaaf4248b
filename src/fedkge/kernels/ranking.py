"""Counting who beats an answer: the plain torch version, for any device, and the choice of the fast one."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from fedkge.kernels import reference
from fedkge.kernels.dispatch import backend


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of entities per query: list i is ids[lo[i]:hi[i]]; `total` is the sum of lengths."""

    ids: Tensor  # int64
    lo: Tensor  # int64 [b]
    hi: Tensor  # int64 [b]
    total: int

    def places(self, width: int) -> Tensor:
        """Where the listed entities stand in a flattened `[b, width]` matrix."""
        length = self.hi - self.lo
        offset = length.cumsum(0) - length
        query = torch.arange(len(length), device=length.device)
        i = torch.repeat_interleave(query, length, output_size=self.total)
        within = torch.arange(self.total, device=length.device) - offset[i]
        return i * width + self.ids[self.lo[i] + within]


class Counts(NamedTuple):
    """Per target, over its candidates other than itself; and whether every score was a finite number."""

    greater: Tensor  # int64 [k]
    equal: Tensor  # int64 [k]
    candidates: Tensor  # int64 [k], with the target itself
    finite: Tensor  # bool, scalar


def count_(scores: Tensor, query: Tensor, target: Tensor, known: Listed, allowed: Listed | None) -> Counts:
    """How many candidates score above, and as high as, each target; `scores` [b, e] are overwritten.

    Target k answers the query in row query[k], ascending. Its candidates are the allowed entities of that
    query (all if None) that are not known answers, and the target itself.
    """
    if scores.is_cpu and backend(scores.device) is not reference:
        from fedkge.kernels.cpu import ranking

        return Counts(*ranking.count_(scores, query, target, known, allowed))
    return count_by_comparing_(scores, query, target, known, allowed)


def count_by_comparing_(
    scores: Tensor, query: Tensor, target: Tensor, known: Listed, allowed: Listed | None
) -> Counts:
    """`count_` in plain torch: nothing waits for the device, nothing is larger than `scores`."""
    finite = scores.isfinite().all()
    own = scores[query, target]
    flat = scores.view(-1)
    if allowed is not None:
        places = allowed.places(scores.shape[1])
        kept = flat[places]
        flat.fill_(-inf).index_copy_(0, places, kept)
    flat.index_fill_(0, known.places(scores.shape[1]), -inf)
    counts = []
    for rows, score in zip(query.split(len(scores)), own.split(len(scores)), strict=True):
        rivals, mine = scores[rows], score[:, None]
        counts.append(torch.stack([x.sum(1) for x in (rivals > mine, rivals == mine, rivals > -inf)]))
    greater, equal, candidates = torch.cat(counts, 1)
    itself = scores[query, target] == own  # an answer that is known, or not allowed, was left out above
    return Counts(greater, equal - itself.long(), candidates + (~itself).long(), finite)
