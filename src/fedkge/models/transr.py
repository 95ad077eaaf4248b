"""TransR (Lin et al., AAAI 2015): translation in a space of the relation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedkge.errors import ConfigError
from fedkge.graphs.graph import Axis
from fedkge.kernels import Similarity
from fedkge.models.base import MODELS, Distance, Side, norm_similarity, within_unit_ball


@MODELS.register("transr")
@dataclass(frozen=True)
class TransR(Distance):
    """`margin - |M h + r - M t|^2`; a relation's row is `[r | M]`, M of relation_dim x dim, row by row.

    M starts as the identity, as the paper does after its TransE warm-up (to start from a trained TransE,
    load its tables). Entities and relation vectors stay within length 1; the paper also keeps M e within
    length 1 by a soft penalty, which is left out.
    """

    margin: float = 1.0
    relation_dim: int | None = None  #: unset: as `dim`
    norm: Literal[1, 2] = 2  #: of the difference; 2 is squared, 1 is not

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relation_dim is not None and self.relation_dim < 1:
            raise ConfigError(f"relation_dim: expected at least 1, got {self.relation_dim}")

    @property
    def k(self) -> int:
        """Width of the relation's space."""
        return self.relation_dim or self.dim

    @property
    def similarity(self) -> Similarity:
        return norm_similarity(self.norm)

    @property
    def blocks(self) -> Mapping[Axis, Mapping[str, int]]:
        return {
            Axis.ENTITY: {"vector": self.dim},
            Axis.RELATION: {"vector": self.k, "matrix": self.k * self.dim},
        }

    @property
    def projects(self) -> bool:
        return True

    def project(self, rows: Tensor, relation: Tensor) -> Tensor:
        matrix = self.block(relation, Axis.RELATION, "matrix").unflatten(-1, (self.k, self.dim))
        return (matrix @ rows[..., None])[..., 0]

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        r = self.block(relation, Axis.RELATION, "vector")
        return self.project(anchor, relation) + (r if side is Side.TAIL else -r)

    @property
    def offset(self) -> None:
        return None

    def finish(self, similarity: Tensor, relation: Tensor) -> Tensor:
        return self.margin + (similarity if self.norm == 1 else -similarity.square())

    def initial(self, uniform: Tensor, axis: Axis) -> Tensor:
        rows = super().initial(uniform, axis)
        if axis is Axis.RELATION:
            identity = torch.eye(self.k, self.dim, dtype=rows.dtype, device=rows.device)
            self.block(rows, axis, "matrix").copy_(identity.flatten())
        return self.constrain(rows, axis)

    def constrain(self, rows: Tensor, axis: Axis) -> Tensor:
        if axis is Axis.ENTITY:
            return within_unit_ball(rows)
        return torch.cat((within_unit_ball(rows[..., : self.k]), rows[..., self.k :]), -1)
