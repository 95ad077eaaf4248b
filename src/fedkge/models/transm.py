"""TransM (Fan et al., PACLIC 2014): TransE whose relations weigh less the more answers they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import Composition, Similarity
from fedkge.models.base import MODELS, Distance, Side, norm_similarity


@MODELS.register("transm")
@dataclass(frozen=True)
class TransM(Distance):
    """`margin - w_r |h + r - t|`, `w_r = 1 / log(heads per tail + tails per head)` (Eq. 3).

    The weight is the last block of a relation's row, read off the training triples and not trained;
    a one-to-one relation weighs 1 / log 2, the most.
    """

    untrained: ClassVar[frozenset[str]] = frozenset({"weight"})
    norm: Literal[1, 2] = 1  #: of the difference

    @property
    def similarity(self) -> Similarity:
        return norm_similarity(self.norm)

    @property
    def blocks(self) -> Mapping[Axis, Mapping[str, int]]:
        return {Axis.ENTITY: {"vector": self.dim}, Axis.RELATION: {"vector": self.dim, "weight": 1}}

    @property
    def composition(self) -> Composition:
        return Composition.TRANSLATE

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        r = self.block(relation, Axis.RELATION, "vector")
        return anchor + r if side is Side.TAIL else anchor - r

    @property
    def offset(self) -> None:
        return None

    def finish(self, similarity: Tensor, relation: Tensor) -> Tensor:
        return self.margin + self.block(relation, Axis.RELATION, "weight").detach() * similarity

    def initial(self, uniform: Tensor, axis: Axis) -> Tensor:
        rows = super().initial(uniform, axis)
        if axis is Axis.RELATION:
            self.block(rows, axis, "weight").fill_(1.0)
        return rows

    def observe(self, relations: Tensor, triples: Tensor) -> None:
        h, r, t = triples.unbind(-1)
        counts = torch.bincount(r, minlength=len(relations)).clamp_min(1).to(relations.dtype)
        tails_per_head, heads_per_tail = (
            counts / torch.bincount(_distinct(r, end), minlength=len(relations)).clamp_min(1)
            for end in (h, t)
        )
        weight = 1 / torch.log((tails_per_head + heads_per_tail).clamp_min(2.0))
        self.block(relations, Axis.RELATION, "weight").copy_(weight[:, None])


def _distinct(relation: Tensor, end: Tensor) -> Tensor:
    """The relation of every distinct (relation, end) pair."""
    return torch.stack((relation, end), -1).unique(dim=0)[:, 0]
