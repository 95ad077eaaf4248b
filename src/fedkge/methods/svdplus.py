"""FedE-SVD+ (a rival in FedS, 2024): low-rank changes travel, and the last epoch trains them as factors."""

from __future__ import annotations

from dataclasses import dataclass

from fedkge.errors import ConfigError
from fedkge.exchange.codec import Codec, Float32
from fedkge.exchange.rows import Update
from fedkge.exchange.svd import Svd
from fedkge.methods.base import METHODS, Kept
from fedkge.methods.fedep import FedEP
from fedkge.methods.state import Site
from fedkge.training import Factoring


@METHODS.register("svdplus")
@dataclass(frozen=True)
class SvdPlus(FedEP):
    """`fedep` with `codec = { name = "svd" }`, whose last epoch of a round trains `U, s, V` of each change.

    The change of a shared row since the round began, folded into `columns`, is taken apart before the last
    epoch, which steps the factors and adds `alpha / n^2 (||U^T U - I||^2 + ||V V^T - I||^2)` to the loss for
    every row, n = `columns` (Eq. 7). Then `rank` of the factors travel, as with `svd`. The paper does not say
    whether Eq. 7 is summed over rows or averaged: summed. Rows that nobody else has are trained as ever.
    """

    rank: int = 5  #: singular values that are kept
    columns: int = 8
    alpha: float = 0.05  #: how much factors are held orthogonal

    def __post_init__(self) -> None:
        Svd(self.rank, self.columns)  # checks them
        if not self.alpha >= 0:
            raise ConfigError(f"alpha: expected at least 0, got {self.alpha}")

    def adopt(self, site: Site, answer: Update) -> None:
        super().adopt(site, answer)
        for axis in self.shares:
            site.kept[axis]["received"].copy_(site.tables.table(axis))

    def kept(self) -> Kept:
        return Kept("received", factoring=Factoring(self.columns, self.alpha))

    def coding(self, given: Codec) -> Codec:
        if given != Float32():
            raise ConfigError("svdplus has a codec of its own: leave out codec, or use fedep with it")
        return Svd(self.rank, self.columns)
