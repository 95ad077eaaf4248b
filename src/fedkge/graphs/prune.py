"""Drop entities that too few triples speak of."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.graphs.graph import Graph, Ids, Mask
from fedkge.graphs.subgraph import subgraph


@dataclass(frozen=True)
class Pruned:
    """What pruning removed."""

    entities: int
    relations: int
    triples: int  #: `unseen` included
    unseen: int  #: valid and test triples of names that train had lost or never had
    passes: int  #: dropping an entity takes triples from its neighbours, which may then go too


def prune(graph: Graph, min_degree: int) -> tuple[Graph, Pruned]:
    """The largest part of the graph in which every entity stands in at least `min_degree` triples,
    and train knows every name of valid and test.

    Triples of all three splits count, a self-loop once. A warning counts the valid and test triples
    that had enough company but names unknown to train.
    """
    if min_degree < 1:
        raise ConfigError(f"min_degree: expected at least 1, got {min_degree}")
    triples = graph.all()
    stays = np.ones(len(triples), np.bool_)
    passes = unseen = 0
    while True:
        sparse = _degrees(triples[stays], graph.n_entities) < min_degree
        goes = stays & (sparse[triples[:, 0]] | sparse[triples[:, 2]])
        if not goes.any():
            goes = stays & _unseen(graph, triples, stays[: len(graph.train)])
            unseen += int(goes.sum())
        if not goes.any():
            break
        stays &= ~goes
        passes += 1
    if not stays.any():
        raise DataError(f"min_degree {min_degree} leaves nothing of the graph; lower it")
    smaller = subgraph(graph, *np.split(stays, np.cumsum([len(graph.train), len(graph.valid)])))
    if unseen:
        warnings.warn(
            f"{unseen:,} valid or test triples dropped: train has no triple of their entities or relation",
            DataWarning,
            stacklevel=2,
        )
    return smaller, Pruned(
        graph.n_entities - smaller.n_entities,
        graph.n_relations - smaller.n_relations,
        int((~stays).sum()),
        unseen,
        passes,
    )


def _degrees(triples: Ids, n_entities: int) -> Ids:
    """How many triples each entity stands in `[n_entities]`."""
    heads, tails = triples[:, 0], triples[:, 2]
    return np.bincount(heads, minlength=n_entities) + np.bincount(tails[heads != tails], minlength=n_entities)


def _unseen(graph: Graph, triples: Ids, trained: Mask) -> Mask:
    """Which triples have an entity or a relation that the training triples left do not have `[m]`."""
    train = graph.train[trained]
    entities, relations = np.zeros(graph.n_entities, np.bool_), np.zeros(graph.n_relations, np.bool_)
    entities[train[:, [0, 2]]] = True
    relations[train[:, 1]] = True
    known: Mask = entities[triples[:, 0]] & relations[triples[:, 1]] & entities[triples[:, 2]]
    return ~known
