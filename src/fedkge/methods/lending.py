"""Virtual entities and relations: neighbours of aligned entities, lent by a client to a host for one update.

They have numbers and no names. An edge is a training triple of the client that is not confidential. Its ends
are aligned entities, by their place in what both have, or lent ones. The host trains with them once and
then forgets them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.graphs.graph import Axis, Graph, Ids, Names
from fedkge.methods.fkge import FKGE
from fedkge.models.tables import LONGEST

NAME = "\x00lent"  #: what lent things are called at the host; no file can hold such a name


@dataclass(frozen=True, slots=True)
class Loan:
    """What a host is lent. Ends of edges below `aligned` are aligned entities, from there on lent ones."""

    aligned: int
    entities: Tensor  # at the client: own rows [m]; at the host: vectors [m, width]
    relations: Tensor  # the same [r]; at the host vectors [r, width], or no numbers where W does not fit
    edges: Tensor  # int64 [k, 3]

    def body(self, made: Mapping[Axis, Tensor]) -> dict[str, Tensor]:
        """As it is sent, with translated vectors."""
        none = torch.empty(len(self.relations), 0)
        return {
            "lent.entities": made[Axis.ENTITY],
            "lent.relations": made.get(Axis.RELATION, none),
            "lent.edges": self.edges,
        }

    @classmethod
    def read(
        cls, body: Mapping[str, Tensor], aligned: int, width: int, relation_width: int, method: FKGE
    ) -> Loan:
        """What came, checked: a host takes no more edges than it asked for."""
        found = {name: body.get(f"lent.{name}") for name in ("entities", "relations", "edges")}
        entities, relations, edges = found.values()
        if entities is None or relations is None or edges is None:
            raise DataError("lent: expected entities, relations and edges")
        wide = {"entities": (entities, width), "relations": (relations, relation_width)}
        for name, (rows, expected) in wide.items():
            if rows.dtype != torch.float32 or rows.ndim != 2 or rows.shape[1] != expected:
                raise DataError(f"lent.{name}: {list(rows.shape)}, expected rows of {expected} numbers")
            if not bool((rows.abs() <= LONGEST).all()):
                raise DataError(f"lent.{name}: expected finite numbers within {LONGEST:g}")
        most = aligned * method.virtual
        if edges.dtype != torch.int64 or edges.ndim != 2 or edges.shape[1] != 3 or len(edges) > most:
            raise DataError(f"lent.edges: {list(edges.shape)}, expected at most {most} triples")
        if len(entities) > most or len(relations) > most:
            raise DataError(f"lent: {len(entities)} entities and {len(relations)} relations for {most} edges")
        ends = torch.tensor([aligned + len(entities), len(relations), aligned + len(entities)])
        if bool((edges < 0).any()) or bool((edges >= ends).any()):
            raise DataError("lent.edges: an end or a relation that is not there")
        return cls(aligned, entities, relations, edges)

    def turned(self, by: Tensor) -> Loan:
        relations = self.relations @ by.T if self.relations.shape[1] else self.relations
        return replace(self, entities=self.entities @ by.T, relations=relations)

    def extended(self, graph: Graph, aligned: Ids) -> Graph:
        """The host's graph with lent things behind its own; `aligned` are its rows of what both have."""
        place = np.concatenate((aligned, graph.n_entities + np.arange(len(self.entities))))
        edges = self.edges.numpy()
        triples = np.stack(
            (place[edges[:, 0]], graph.n_relations + edges[:, 1], place[edges[:, 2]]), 1
        ).astype(np.int64)
        entities = [*graph.entities, *(f"{NAME} {i}" for i in range(len(self.entities)))]
        relations = [*graph.relations, *(f"{NAME} {i}" for i in range(len(self.relations)))]
        train = np.concatenate((graph.train, np.unique(triples, axis=0)))
        marks = graph.confidential
        if marks is not None:
            marks = np.concatenate((marks, np.zeros(len(train) - len(graph.train), np.bool_)))
        persons = graph.persons
        if persons is not None:
            persons = np.concatenate((persons, np.zeros(len(self.entities), np.bool_)))
        return Graph(
            Names(entities), Names(relations, Axis.RELATION), train, graph.valid, graph.test, marks, persons
        )


def lent(
    graph: Graph,
    taken: Tensor,
    aligned: Tensor,
    method: FKGE,
    random: np.random.Generator,
    withheld: Collection[int] = (),
) -> Loan:
    """What a client lends: for each aligned entity at most `virtual` of its edges, at random.

    An edge between two aligned entities counts for one of them. Confidential triples are not lent, nor is a
    triple of an entity that is `withheld`.
    """
    train = graph.train if graph.confidential is None else graph.train[~graph.confidential]
    if withheld:
        train = train[~np.isin(train[:, ::2], list(withheld)).any(axis=1)]
    place = np.full(graph.n_entities, -1, np.int64)
    place[taken.numpy()] = np.arange(len(taken))
    known = np.zeros(graph.n_entities, np.bool_)
    known[aligned.numpy()] = True
    train = train[random.permutation(len(train))]
    chosen = np.zeros(len(train), np.bool_)
    for end, other in ((0, 2), (2, 0)):
        here = place[train[:, end]] >= 0
        outside = ~known[train[:, other]]
        if method.edges == "all":
            outside = outside | (place[train[:, other]] >= 0)
        at = np.flatnonzero(here & outside & ~chosen)
        chosen[at[_first(train[at, end], method.virtual, _counted(train[chosen], end, graph.n_entities))]] = (
            True
        )
    edges = train[chosen]
    new = np.unique(edges[:, ::2][place[edges[:, ::2]] < 0])
    relations, relation = np.unique(edges[:, 1], return_inverse=True)
    place[new] = len(taken) + np.arange(len(new))
    triples = (
        np.stack((place[edges[:, 0]], relation, place[edges[:, 2]]), 1) if len(edges) else np.empty((0, 3))
    )
    return Loan(
        len(taken),
        torch.from_numpy(new),
        torch.from_numpy(relations),
        torch.from_numpy(triples.astype(np.int64)),
    )


def _counted(edges: Ids, end: int, size: int) -> Ids:
    """How many edges each entity has already, at its other end."""
    return np.bincount(edges[:, 2 - end], minlength=size)


def _first(entity: Ids, most: int, before: Ids) -> Ids:
    """Positions of the first `most` edges of each entity, less those that it has already."""
    order = np.argsort(entity, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(entity[order]) != 0)) if len(order) else order
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    kept: Ids = order[rank + before[entity[order]] < most]
    return kept
