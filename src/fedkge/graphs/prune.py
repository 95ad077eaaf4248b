"""Drop entities that too few statements speak of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkge.errors import ConfigError, DataError
from fedkge.graphs.graph import Graph, Ids
from fedkge.graphs.subgraph import subgraph


@dataclass(frozen=True)
class Pruned:
    """What pruning removed."""

    entities: int
    relations: int
    statements: int
    passes: int  #: dropping an entity takes statements from its neighbours, which may then go too


def prune(graph: Graph, min_degree: int) -> tuple[Graph, Pruned]:
    """The largest part of the graph in which every entity stands in at least `min_degree` statements.

    Statements of all three splits count, a self-loop once.
    """
    if min_degree < 1:
        raise ConfigError(f"min_degree: expected at least 1, got {min_degree}")
    triples = graph.all()
    stays = np.ones(len(triples), np.bool_)
    passes = 0
    while True:
        sparse = _degrees(triples[stays], graph.n_entities) < min_degree
        goes = stays & (sparse[triples[:, 0]] | sparse[triples[:, 2]])
        if not goes.any():
            break
        stays &= ~goes
        passes += 1
    if not stays.any():
        raise DataError(f"min_degree {min_degree} leaves nothing of the graph; lower it")
    smaller = subgraph(graph, *np.split(stays, np.cumsum([len(graph.train), len(graph.valid)])))
    if not len(smaller.train):
        raise DataError(f"min_degree {min_degree} leaves no training statement; lower it")
    return smaller, Pruned(
        graph.n_entities - smaller.n_entities,
        graph.n_relations - smaller.n_relations,
        int((~stays).sum()),
        passes,
    )


def _degrees(triples: Ids, n_entities: int) -> Ids:
    """How many statements each entity stands in `[n_entities]`."""
    heads, tails = triples[:, 0], triples[:, 2]
    return np.bincount(heads, minlength=n_entities) + np.bincount(tails[heads != tails], minlength=n_entities)
