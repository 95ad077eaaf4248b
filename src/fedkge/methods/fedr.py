"""FedR (Zhang et al., Findings of EMNLP 2022): FedE on relation rows; entity rows stay at their site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedkge.methods.base import METHODS
from fedkge.methods.fede import FedE


@METHODS.register("fedr")
@dataclass(frozen=True)
class FedR(FedE):
    """Messages are small, and no entity row leaves its site.

    Needs relations that several sites use. If sites share none (the R and C partitions of FB15k-237), nothing
    is sent, and FedR is `single` with a new optimizer every round.
    """

    share: Literal["entities", "relations", "both"] = "relations"  #: which rows are sent
