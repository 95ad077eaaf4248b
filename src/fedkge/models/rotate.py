"""RotatE (Sun et al., ICLR 2019): a relation is a rotation in the complex plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi

from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import Similarity
from fedkge.models.base import MODELS, Distance, Side
from fedkge.models.complex import multiply


@MODELS.register("rotate")
@dataclass(frozen=True)
class RotatE(Distance):
    """`margin - sum_k |h_k e^(i phase_k) - t_k|`; the stored phase is scaled so that +-range is +-pi."""

    margin: float = 9.0

    @property
    def similarity(self) -> Similarity:
        return Similarity.MODULUS

    @property
    def blocks(self) -> Mapping[Axis, Mapping[str, int]]:
        return {Axis.ENTITY: {"real": self.dim, "imaginary": self.dim}, Axis.RELATION: {"phase": self.dim}}

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        phase = relation * (pi / self.range)
        sine = phase.sin()
        return multiply(anchor, phase.cos(), sine if side is Side.TAIL else -sine)
