"""TransH (Wang et al., AAAI 2014): translation on a hyperplane of the relation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import Similarity
from fedkge.models.base import MODELS, Distance, Side, norm_similarity, on_unit_sphere, within_unit_ball


@MODELS.register("transh")
@dataclass(frozen=True)
class TransH(Distance):
    """`margin - |h' + d - t'|^2`, `x' = x - <w, x> w`; a relation's row is `[d | w]`.

    The paper's constraints hold after every step: |w| = 1, |e| <= 1, and d lies in the hyperplane (it asks
    for the last two by penalties; here they are met exactly). With norm 1 the distance is not squared.
    """

    margin: float = 1.0
    norm: Literal[1, 2] = 2  #: of the difference; 2 is squared, 1 is not

    @property
    def similarity(self) -> Similarity:
        return norm_similarity(self.norm)

    @property
    def blocks(self) -> Mapping[Axis, Mapping[str, int]]:
        return {Axis.ENTITY: {"vector": self.dim}, Axis.RELATION: {"vector": self.dim, "normal": self.dim}}

    @property
    def projects(self) -> bool:
        return True

    def project(self, rows: Tensor, relation: Tensor) -> Tensor:
        w = self.block(relation, Axis.RELATION, "normal")
        return rows - (w * rows).sum(-1, keepdim=True) * w

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        d = self.block(relation, Axis.RELATION, "vector")
        return self.project(anchor, relation) + (d if side is Side.TAIL else -d)

    @property
    def offset(self) -> None:
        return None

    def finish(self, similarity: Tensor, relation: Tensor) -> Tensor:
        return self.margin + (similarity if self.norm == 1 else -similarity.square())

    def initial(self, uniform: Tensor, axis: Axis) -> Tensor:
        return self.constrain(super().initial(uniform, axis), axis)

    def constrain(self, rows: Tensor, axis: Axis) -> Tensor:
        if axis is Axis.ENTITY:
            return within_unit_ball(rows)
        d, w = rows.chunk(2, -1)
        w = on_unit_sphere(w)
        return torch.cat((d - (w * d).sum(-1, keepdim=True) * w, w), -1)
