"""FedS (Zhang et al., 2024): FedEP that sends only the rows that changed most."""

from __future__ import annotations

from dataclasses import dataclass

from fedkge.errors import ConfigError
from fedkge.exchange.select import Full, Selection, TopK
from fedkge.methods.base import METHODS
from fedkge.methods.fedep import FedEP


@METHODS.register("feds")
@dataclass(frozen=True)
class FedS(FedEP):
    """`fedep` with `select = { name = "topk", p = 0.4, s = 4 }`: a name for the paper's setting.

    Each site sends the share p of its shared rows that changed most. It receives as many rows, those that
    most other sites sent, and averages them with its own (Eq. 4). After s such rounds all rows are sent
    in one round. The paper's FedS/syn, without full rounds, is `fedep` with `topk` and s unset.
    """

    p: float = 0.4  #: share of the shared rows that is sent; 1 is FedEP
    s: int = 4  #: sparse rounds between two full ones; 0 is FedEP
    first: int | None = None  #: the first full round; unset: round s

    def __post_init__(self) -> None:
        TopK(self.p, self.s, self.first)  # checks them

    def selection(self, given: Selection) -> Selection:
        if given != Full():
            raise ConfigError("feds has a selection of its own: leave out select, or use fedep with it")
        return TopK(self.p, self.s, self.first)
