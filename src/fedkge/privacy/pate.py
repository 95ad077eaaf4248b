"""PATE (Papernot et al., 2017, 2018): what votes of teachers cost, each of which saw its own rows only.

One row is in one teacher's part, so it moves one vote: `n_0` and `n_1` change by 1 each. With Gaussian
noise of deviation s on both counts that is a Gaussian mechanism of sensitivity sqrt(2): a Rényi divergence of
alpha / s^2 per vote (GNMax). With Laplace noise of scale b it is two Laplace mechanisms of sensitivity 1:
2 / b-differentially private per vote. These bounds do not depend on the votes. Every generated row
of every pass is a vote, and votes for all partners add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, expm1, inf, log, log1p, sqrt
from typing import ClassVar

from fedkge.privacy.releases import MECHANISMS, Everything, Mechanism, Release

ORDERS = range(1, 2001)  #: moments l that are tried


@dataclass(frozen=True)
class _Votes(Mechanism):
    sent: bool = False  #: the same rows leave, translated and without noise, when the peer is the client
    chosen: bool = False  #: the host says which pass came nearest to its rows, without noise

    @property
    def flaw(self) -> str:
        flaws = {
            "the peer sends the same rows, translated and without noise, as a client": self.sent,
            "the host says without noise which pass came nearest to its rows": self.chosen,
        }
        return "; ".join(flaw for flaw, found in flaws.items() if found)


@MECHANISMS.register("gaussian-votes")
@dataclass(frozen=True)
class GaussianVotes(_Votes):
    """Gaussian noise on both counts of a vote; one row moves them by sqrt(2) in all."""

    def __str__(self) -> str:
        return f"votes with Gaussian noise of deviation {self.noise * sqrt(2):.4g}"


@MECHANISMS.register("laplace-votes")
@dataclass(frozen=True)
class LaplaceVotes(_Votes):
    """Laplace noise on both counts of a vote; one row moves each by 1."""

    numbers: ClassVar[int] = 2

    def __str__(self) -> str:
        return f"votes with Laplace noise of scale {self.noise:.4g}"


def votes_release(law: str, scale: float, count: int, sent: bool = False, chosen: bool = False) -> Release:
    """So many votes with noise of this scale; scale 0 is no noise, and no guarantee."""
    made = GaussianVotes(scale / sqrt(2), sent, chosen)
    mechanism = made if law == "gaussian" else LaplaceVotes(scale, sent, chosen)
    return Release(mechanism, Everything(), count, "votes", "row", "replace-one")


def paper_epsilon(gaps: Mapping[int, int], scale: float, delta: float) -> float:
    """FKGE's Eqs. 8 to 10, the printed `1 - e^(2 lambda q)` read as `1 - e^(2 lambda) q`.

    `gaps` counts votes by `|n_0 - n_1|`; lambda is the inverse of the noise's scale. The result depends on
    the votes, which are private, so that it is no guarantee and must not be published.
    """
    if scale == 0:
        return inf if any(gaps.values()) else 0.0
    rate = 1 / scale
    return min(
        (sum(n * _moment(rate, gap, order) for gap, n in gaps.items()) + log(1 / delta)) / order
        for order in ORDERS
    )


def _moment(rate: float, gap: int, order: int) -> float:
    """Eq. 9 for one vote."""
    always = 2 * rate**2 * order * (order + 1)
    q = (2 + rate * gap) / 4 * exp(-rate * gap)  # Eq. 10
    if 2 * rate * order > 600 or q >= 1 / (exp(2 * rate) + 1):  # the first: numbers would overflow
        return always
    inside = order * (log1p(-q) - log1p(-exp(2 * rate) * q))
    return min(always, log1p((1 - q) * expm1(inside) + q * expm1(2 * rate * order)))
