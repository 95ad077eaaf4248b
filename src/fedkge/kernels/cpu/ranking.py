"""Counting who beats an answer, on the CPU: one pass over a query's scores per answer, all in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np
import torch
from torch import Tensor

from fedkge.kernels.cpu.compile import parallel

if TYPE_CHECKING:
    from fedkge.kernels.ranking import Listed


def count_(
    scores: Tensor, query: Tensor, target: Tensor, known: Listed, allowed: Listed | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `kernels.ranking.count_`."""
    first = np.searchsorted(query.numpy(), np.arange(len(scores) + 1))
    greater, equal, candidates = (torch.empty(len(target), dtype=torch.int64) for _ in range(3))
    finite = torch.empty(len(scores), dtype=torch.bool)
    lists = [
        array.numpy() for listed in (known, allowed or known) for array in (listed.ids, listed.lo, listed.hi)
    ]
    out = (array.numpy() for array in (greater, equal, candidates, finite))
    _count(scores.numpy(), first, target.numpy(), *lists, allowed is not None, *out)
    return greater, equal, candidates, finite.all()


@parallel()
def _count(
    scores,
    first,
    target,
    known,
    known_lo,
    known_hi,
    allowed,
    allowed_lo,
    allowed_hi,
    restrict,
    greater,
    equal,
    candidates,
    finite,
):
    b, e = scores.shape
    for i in numba.prange(b):
        row = scores[i]
        strange = 0
        for j in range(e):
            strange += not abs(row[j]) < np.inf  # also counts NaN
        finite[i] = strange == 0
        own = np.empty(first[i + 1] - first[i], scores.dtype)
        for k in range(own.shape[0]):
            own[k] = row[target[first[i] + k]]
        if restrict:
            kept = np.full(e, -np.inf, scores.dtype)
            for place in range(allowed_lo[i], allowed_hi[i]):
                kept[allowed[place]] = row[allowed[place]]
            row[:] = kept
        for place in range(known_lo[i], known_hi[i]):
            row[known[place]] = -np.inf
        left = 0
        for j in range(e):
            left += row[j] > -np.inf
        for k in range(own.shape[0]):
            score, above, same = own[k], 0, 0
            for j in range(e):
                above += row[j] > score
                same += row[j] == score
            itself = row[target[first[i] + k]] == score
            greater[first[i] + k] = above
            equal[first[i] + k] = same - itself
            candidates[first[i] + k] = left + (not itself)
