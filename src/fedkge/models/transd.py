"""TransD (Ji et al., ACL 2015): translation after a projection built from two vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import Similarity
from fedkge.models.base import MODELS, Distance, Side, norm_similarity, within_unit_ball


@MODELS.register("transd")
@dataclass(frozen=True)
class TransD(Distance):
    """`margin - |h' + r - t'|^2`, `x' = x + <x_p, x> r_p` (Eq. 11-12 with equal widths).

    Both rows are `[vector | projection]`. The paper keeps entities, relations and projected entities within
    length 1; here vectors are kept so from the first row on, and projected entities where they are used.
    """

    margin: float = 1.0
    norm: Literal[1, 2] = 2  #: of the difference; 2 is squared, 1 is not

    @property
    def similarity(self) -> Similarity:
        return norm_similarity(self.norm)

    @property
    def blocks(self) -> Mapping[Axis, Mapping[str, int]]:
        row = {"vector": self.dim, "projection": self.dim}
        return {Axis.ENTITY: row, Axis.RELATION: row}

    @property
    def projects(self) -> bool:
        return True

    def project(self, rows: Tensor, relation: Tensor) -> Tensor:
        x, x_p = rows.chunk(2, -1)
        r_p = self.block(relation, Axis.RELATION, "projection")
        return within_unit_ball(x + (x_p * x).sum(-1, keepdim=True) * r_p)

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        r = self.block(relation, Axis.RELATION, "vector")
        return self.project(anchor, relation) + (r if side is Side.TAIL else -r)

    @property
    def offset(self) -> None:
        return None

    def finish(self, similarity: Tensor, relation: Tensor) -> Tensor:
        return self.margin + (similarity if self.norm == 1 else -similarity.square())

    def initial(self, uniform: Tensor, axis: Axis) -> Tensor:
        return self.constrain(super().initial(uniform, axis), axis)

    def constrain(self, rows: Tensor, axis: Axis) -> Tensor:
        x, x_p = rows.chunk(2, -1)
        return torch.cat((within_unit_ball(x), x_p), -1)
