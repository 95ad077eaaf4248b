"""FedR (Zhang et al., Findings of EMNLP 2022): FedE on relation rows; entity rows stay at their site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedkge.methods.base import METHODS
from fedkge.methods.fede import FedE


@METHODS.register("fedr")
@dataclass(frozen=True)
class FedR(FedE):
    """Relations are few and say less: small messages, and no entity row to look at.

    Needs relations that several sites use. Where sites have none in common (the R and C partitions of
    FB15k-237) nothing travels, and FedR is `single` with a new optimizer every round.
    """

    share: Literal["entities", "relations", "both"] = "relations"  #: whose rows travel
