"""The Mann-Whitney U test: whether one group's numbers tend to be above another's."""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, sqrt

import numpy as np

from fedkge.audits.roc import Numbers, midranks
from fedkge.errors import DataError


@dataclass(frozen=True, slots=True)
class RankSum:
    """U of the first group: pairs in which its number is the higher one, ties count half."""

    u: float
    p: float  #: two-sided, by the normal approximation


def mann_whitney(first: Numbers, second: Numbers) -> RankSum:
    """The variance is corrected for ties, the difference for continuity."""
    n, m = len(first), len(second)
    if not n or not m:
        raise DataError(f"Mann-Whitney: {n} numbers against {m}; expected some of both")
    both = np.concatenate((first, second))
    u = float(midranks(both)[:n].sum()) - n * (n + 1) / 2
    ties = np.unique(both, return_counts=True)[1].astype(np.float64)
    variance = n * m / 12 * (n + m + 1 - float((ties**3 - ties).sum()) / ((n + m) * (n + m - 1)))
    if variance <= 0:
        return RankSum(u, 1.0)  # all are equal
    z = max(0.0, abs(u - n * m / 2) - 0.5) / sqrt(variance)
    return RankSum(u, erfc(z / sqrt(2)))
