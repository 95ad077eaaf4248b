"""Graphs of a few dozen entities, and sites that train on them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedkge import randomness
from fedkge.exchange.announce import identify, in_common
from fedkge.graphs.graph import Axis, Federation, Graph, Names
from fedkge.models import Model, Tables
from fedkge.training import Batch, Corpus, Trainer, Training


def graph_of(triples: np.ndarray, entities: int, relations: int, prefix: str = "") -> Graph:
    """All of `triples` for training; entities are e0, e1, ..., relations r0, r1, ... after `prefix`."""
    names = (
        Names([f"e{i}" for i in range(entities)]),
        Names([f"{prefix}r{i}" for i in range(relations)], Axis.RELATION),
    )
    return Graph(*names, np.asarray(triples, np.int64).reshape(-1, 3))


def random_graph(seed: int, entities: int, relations: int, count: int) -> Graph:
    """About as many triples as asked for, in random order."""
    random = np.random.default_rng(seed)
    triples = np.unique(random.integers(0, [entities, relations, entities], (count, 3)), axis=0)
    return graph_of(random.permutation(triples), entities, relations, f"{seed}.")


def ring(entities: int = 24) -> Graph:
    """A graph that can be learnt: relation k leads k + 1 steps round a ring."""
    steps = [(i, k, (i + k + 1) % entities) for i in range(entities) for k in range(3)]
    return graph_of(np.array(steps), entities, 3)


def first_tables(model: Model, graph: Graph, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tables:
    keys = [
        torch.from_numpy(randomness.name_keys(names).view(np.int64))
        for names in (graph.entities, graph.relations)
    ]
    tables = Tables.create(model, keys[0], keys[1], seed, dtype=dtype)
    model.observe(tables.relations, torch.from_numpy(graph.train))
    return tables


def start(
    trainer: Trainer,
    model: Model,
    sites: Mapping[str, Graph],
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Training:
    """Training of the sites stacked, from their first rows."""
    parts = [first_tables(model, graph, seed, dtype) for graph in sites.values()]
    entities, relations = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("entities", "relations")
    )
    return Training(trainer, Tables(model, entities, relations), Corpus.of(sites, seed))


def shares(training: Training, sites: Mapping[str, Graph]) -> dict[str, tuple[Tensor, Tensor]]:
    """Each site's entity and relation rows."""
    parts = [
        training.tables.table(axis).split([getattr(graph, size) for graph in sites.values()])
        for axis, size in ((Axis.ENTITY, "n_entities"), (Axis.RELATION, "n_relations"))
    ]
    return dict(zip(sites, zip(*parts, strict=True), strict=True))


def watch(training: Training) -> list[Batch]:
    """Every batch that the training takes from now on, one step at a time."""
    seen: list[Batch] = []
    make = training._batch
    training._together = None  # draws where nobody can watch

    def record(count: int, side: object, clock: Tensor) -> Batch:
        seen.append(make(count, side, clock))
        return seen[-1]

    training._batch = record
    return seen


def triples_of(batch: Batch) -> Tensor:
    """The true triples [b, 3] of a batch."""
    ends = (batch.anchor, batch.index[:, 0])
    head, tail = ends if batch.side == "tail" else ends[::-1]
    return torch.stack((head, batch.relation, tail), -1)


def names_of(federation: Federation) -> dict[str, dict[Axis, list[str]]]:
    """All names of each site."""
    return {
        s: {Axis.ENTITY: list(g.entities), Axis.RELATION: list(g.relations)} for s, g in federation.items()
    }


def shared_names(federation: Federation, axis: Axis) -> list[str]:
    """The names that at least two sites have, as a hub finds them."""
    return [
        one.decode() for one in in_common(identify(own[axis], axis) for own in names_of(federation).values())
    ]
