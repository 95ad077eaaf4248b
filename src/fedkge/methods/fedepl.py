"""FedEPL (Zhang et al., 2024): FedEP in fewer dimensions, so that it sends what FedS sends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from fedkge.exchange.select import TopK
from fedkge.methods.base import METHODS
from fedkge.methods.fedep import FedEP
from fedkge.models import Model


@METHODS.register("fedepl")
@dataclass(frozen=True)
class FedEPL(FedEP):
    """Trains `ceil(R dim)` dimensions, R the share of FedEP's values that FedS sends in a cycle (Eq. 5).

    With p = 0.4, s = 4 and 256 dimensions these are 135. As in the paper, R is computed with `dim` for
    complex models too.
    """

    p: float = 0.4  #: `p` of the FedS that it is compared with
    s: int = 4  #: `s` of the FedS that it is compared with

    def __post_init__(self) -> None:
        TopK(self.p, self.s)  # checks them

    def embedding(self, model: Model) -> Model:
        p, s, dim = self.p, self.s, model.dim
        ratio = (p * s + 1 + (2 + p) * s / (2 * dim)) / (s + 1)
        return replace(model, dim=min(dim, ceil(ratio * dim)))
