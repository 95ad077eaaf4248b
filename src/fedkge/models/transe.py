"""TransE (Bordes et al., NeurIPS 2013): a relation is a translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import Composition, Similarity
from fedkge.models.base import MODELS, Distance, Side, bordes_uniform, norm_similarity, on_unit_sphere


@MODELS.register("transe")
@dataclass(frozen=True)
class TransE(Distance):
    """`margin - |h + r - t|`.

    By default as in Sun et al. (2019) and the federated papers: first rows in +-(margin + 2) / dim, no
    constraint. `classic` is the original: first rows in +-6 / sqrt(dim), entities of length one.
    """

    norm: Literal[1, 2] = 1  #: of the difference
    classic: bool = False  #: initialises and constrains as Bordes et al. (2013)

    @property
    def similarity(self) -> Similarity:
        return norm_similarity(self.norm)

    @property
    def composition(self) -> Composition:
        return Composition.TRANSLATE

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        return anchor + relation if side is Side.TAIL else anchor - relation

    def initial(self, uniform: Tensor, axis: Axis) -> Tensor:
        if not self.classic:
            return super().initial(uniform, axis)
        return on_unit_sphere(bordes_uniform(uniform, self.dim))

    def constrain(self, rows: Tensor, axis: Axis) -> Tensor | None:
        return on_unit_sphere(rows) if self.classic and axis is Axis.ENTITY else None
