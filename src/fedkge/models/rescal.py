"""RESCAL (Nickel et al., ICML 2011): a relation is a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.models.base import MODELS, Bilinear, Side


@MODELS.register("rescal")
@dataclass(frozen=True)
class Rescal(Bilinear):
    """`h^T R t`; a relation's row is the matrix R, row by row."""

    @property
    def blocks(self) -> Mapping[Axis, Mapping[str, int]]:
        return {Axis.ENTITY: {"vector": self.dim}, Axis.RELATION: {"matrix": self.dim * self.dim}}

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        matrix = relation.unflatten(-1, (self.dim, self.dim))
        if side is Side.TAIL:
            return (anchor[..., None, :] @ matrix)[..., 0, :]
        return (matrix @ anchor[..., None])[..., 0]
