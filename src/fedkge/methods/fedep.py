"""FedEP: FedE, measured by each site's own table after its training (FedLU's and FedS's "FedE")."""

from __future__ import annotations

from dataclasses import dataclass

from fedkge.methods.base import METHODS, Method
from fedkge.methods.fede import FedE


@METHODS.register("fedep")
@dataclass(frozen=True)
class FedEP(FedE):
    """The same rounds as FedE. The site's own table is validated and kept, before the hub's answer.

    Zhang et al. (FedS, 2024) name it; FedLU's code (Zhu et al., WWW 2023) evaluates all its baselines so.
    """

    measures_answer = Method.measures_answer
    measured = Method.measured
