"""ComplEx (Trouillon et al., ICML 2016): DistMult over complex numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import Composition
from fedkge.models.base import MODELS, Bilinear, Side


@MODELS.register("complex")
@dataclass(frozen=True)
class ComplEx(Bilinear):
    """`Re <h, r, conj(t)>`; rows are `[real | imaginary]`."""

    @property
    def blocks(self) -> Mapping[Axis, Mapping[str, int]]:
        row = {"real": self.dim, "imaginary": self.dim}
        return {Axis.ENTITY: row, Axis.RELATION: row}

    @property
    def composition(self) -> Composition:
        return Composition.MULTIPLY

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        c, d = relation.chunk(2, -1)
        return multiply(anchor, c, d if side is Side.TAIL else -d)


def multiply(row: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """(a + ib)(c + id) for a row `[a | b]`."""
    a, b = row.chunk(2, -1)
    return torch.cat((a * c - b * d, a * d + b * c), -1)
