"""Type constraints: only entities seen at that end of a relation are candidates for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkge.evaluation.filter import Lists
from fedkge.graphs.graph import Graph, Ids
from fedkge.models import Side


@dataclass(frozen=True, slots=True, eq=False)
class TypeConstraints:
    """The candidates of each relation's head and tail. A question's own answer always stays a candidate."""

    heads: Lists
    tails: Lists

    @classmethod
    def of(cls, triples: Ids, n_entities: int) -> TypeConstraints:
        h, r, t = triples.T
        return cls(Lists.build(r, h, n_entities), Lists.build(r, t, n_entities))

    @classmethod
    def from_train(cls, graph: Graph) -> TypeConstraints:
        """Entities that a training triple puts there; a relation absent from train has none."""
        return cls.of(graph.train, graph.n_entities)

    @classmethod
    def openke(cls, graph: Graph) -> TypeConstraints:
        """As OpenKE's type_constrain.txt: from all splits. This leaks: test answers shape the candidates."""
        return cls.of(graph.all(), graph.n_entities)

    def side(self, side: Side) -> Lists:
        return self.tails if side is Side.TAIL else self.heads

    def candidates(self, relation: int, side: Side) -> Ids:
        """The entities allowed at `side` of the relation, ascending."""
        lists = self.side(side)
        lo, hi = lists.ranges(np.array([relation]))
        return lists.ids[lo[0] : hi[0]]
