"""DistMult (Yang et al., ICLR 2015): RESCAL with diagonal matrices."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedkge.kernels import Composition
from fedkge.models.base import MODELS, Bilinear, Side


@MODELS.register("distmult")
@dataclass(frozen=True)
class DistMult(Bilinear):
    """`sum h r t`; symmetric in h and t."""

    @property
    def composition(self) -> Composition:
        return Composition.SCALE

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        return anchor * relation
