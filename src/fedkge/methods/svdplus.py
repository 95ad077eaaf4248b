"""FedE-SVD+ (a baseline in FedS, 2024): low-rank changes are sent; the last epoch trains them as factors."""

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
    """`fedep` with `codec = { name = "svd" }`, and the last epoch of a round trains `U, s, V` of changes.

    Before the last epoch, the change of a shared row since the start of the round is folded into
    `columns` and factored. The last epoch steps the factors and adds `alpha / n^2 (||U^T U - I||^2 + ||V
    V^T - I||^2)` to the loss for every row, n = `columns` (Eq. 7). Then `rank` of the factors are sent,
    as with `svd`. The paper does not say whether Eq. 7 is summed or averaged over rows: here it is
    summed. Rows that only one site has are trained as usual.
    """

    rank: int = 5  #: singular values that are sent
    columns: int = 8  #: columns of the matrix that a row's change is folded into
    alpha: float = 0.05  #: weight of the orthogonality of the factors

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
