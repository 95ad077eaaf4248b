"""How well a number tells members from others: areas, hits at few false alarms, and their errors.

Several groups of triples (the sites of a run) are judged each by thresholds of its own, since scores of
two models have no common scale; what is reported is the mean over groups, weighted by their members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import DataError

LEVEL = 0.95  #: of every interval
Z = 1.959963984540054  #: the normal quantile at which 95 % lie within
RESAMPLED = 500  #: times that triples are drawn again for an interval

Numbers = NDArray[np.float64]


class Scored(NamedTuple):
    """The attacker's number for each triple of one group: higher is more likely a member."""

    members: Numbers  # [n]
    others: Numbers  # [m]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def plain(self, name: str) -> dict[str, float]:
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def auc(groups: Sequence[Scored]) -> Estimate:
    """The chance that a member scores above a non-member, ties count half; variance by DeLong (1988)."""
    weights = _weights(groups)
    each = [_delong(group) for group in groups]
    value = sum(w * area for w, (area, _) in zip(weights, each, strict=True))
    spread = Z * sqrt(sum(w * w * variance for w, (_, variance) in zip(weights, each, strict=True)))
    if not spread and value in (0.0, 1.0):  # of n pairs of different triples all came out the same
        pairs = sum(min(map(len, group)) for group in groups)
        spread = 1 - ((1 - LEVEL) / 2) ** (1 / pairs)
    return Estimate(value, max(0.0, value - spread), min(1.0, value + spread))


def _delong(group: Scored) -> tuple[float, float]:
    """Area and its variance, from midranks."""
    above, below = _shares(group)
    return float(above.mean()), _variance(above, below)


def _shares(group: Scored) -> tuple[Numbers, Numbers]:
    """Of each member the share of others below it [n]; of each other the share of members above it [m]."""
    n, m = len(group.members), len(group.others)
    together = midranks(np.concatenate(group))
    above = (together[:n] - midranks(group.members)) / m
    below = 1 - (together[n:] - midranks(group.others)) / n
    return above, below


def _variance(above: Numbers, below: Numbers) -> float:
    return sum(float(part.var(ddof=1)) / len(part) for part in (above, below) if len(part) > 1)


def difference(first: Sequence[Scored], second: Sequence[Scored]) -> Estimate:
    """The first area less the second, of two models on the same triples; variance by DeLong (1988)."""
    weights = _weights(first)
    value, spread = 0.0, 0.0
    for weight, one, two in zip(weights.tolist(), first, second, strict=True):
        above, below = (a - b for a, b in zip(_shares(one), _shares(two), strict=True))
        value += weight * float(above.mean())
        spread += weight**2 * _variance(above, below)
    spread = Z * sqrt(spread)
    return Estimate(value, value - spread, value + spread)


def midranks(values: Numbers) -> Numbers:
    """Ranks from 1, equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: Numbers = (last - (count - 1) / 2)[place]
    return ranks


def hits(groups: Sequence[Scored], rate: float, random: np.random.Generator) -> Estimate:
    """The share of members found when at most a share `rate` of non-members is taken for members.

    Its interval is that of members and non-members drawn again, which moves the threshold too.
    """
    weights = _weights(groups)
    value = float(weights @ [_found(group.members, group.others, rate)[0] for group in groups])
    again = np.zeros(RESAMPLED)
    for weight, group in zip(weights, groups, strict=True):
        members, others = (side[random.integers(0, len(side), (RESAMPLED, len(side)))] for side in group)
        again += weight * _found(members, others, rate)
    low, high = np.quantile(again, ((1 - LEVEL) / 2, (1 + LEVEL) / 2)).tolist()
    return Estimate(value, min(low, value), max(high, value))


def curve(groups: Sequence[Scored], points: int = 60) -> list[tuple[float, float]]:
    """(false alarms, hits) from few to all; alarms rise by equal factors, as few of them matter most."""
    weights = _weights(groups)
    least = min(1e-3, 1 / max(len(group.others) for group in groups))
    rates = np.geomspace(least, 1, points).tolist()
    return [(rate, float(weights @ [_found(*group, rate)[0] for group in groups])) for rate in rates]


def allowed(epsilon: float, delta: float, alarms: float) -> float:
    """What (ε, δ) leaves to find at a rate f of alarms: `min(e^ε f + δ, 1 - e^-ε (1 - δ - f))`."""
    factor = exp(min(epsilon, 700.0))
    return min(1.0, factor * alarms + delta, 1 - (1 - delta - alarms) / factor)


def _found(members: Numbers, others: Numbers, rate: float) -> Numbers:
    """Hits `[k]` of k resamples [k, n] against [k, m]: above the highest threshold with few enough alarms."""
    members, others = np.atleast_2d(members), np.atleast_2d(others)
    m = others.shape[1]
    allowed = int(rate * m + 1e-9)
    if allowed >= m:
        return np.ones(len(members))
    threshold = np.partition(others, m - 1 - allowed, axis=1)[:, m - 1 - allowed]
    hits: Numbers = (members > threshold[:, None]).mean(axis=1)
    return hits


def proportion(successes: int, of: int) -> Estimate:
    """A share with its Wilson interval."""
    p, z = successes / of, Z * Z / of
    middle, half = (p + z / 2) / (1 + z), Z * sqrt(p * (1 - p) / of + z / (4 * of)) / (1 + z)
    return Estimate(p, max(0.0, middle - half), min(1.0, middle + half))


def median(values: Numbers) -> Estimate:
    """The median, and the values whose ranks enclose it: the interval holds for every distribution."""
    ordered, n = np.sort(values), len(values)
    off = Z * sqrt(n) / 2
    low, high = max(0, int(n / 2 - off)), min(n - 1, int(np.ceil(n / 2 + off)))
    return Estimate(float(np.median(ordered)), float(ordered[low]), float(ordered[high]))


def _weights(groups: Sequence[Scored]) -> Numbers:
    if not groups or not all(len(side) for group in groups for side in group):
        raise DataError("an attack needs members and non-members, found none of one of them")
    counts = np.array([len(group.members) for group in groups], np.float64)
    weights: Numbers = counts / counts.sum()
    return weights
