"""Graphs that differ in one triple (Han et al., 2022, 4.7): how much one triple moves its own rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedkge.errors import ConfigError, DataError
from fedkge.evaluation import Known, rank
from fedkge.graphs.graph import Federation, Graph, Ids
from fedkge.models import Side
from fedkge.randomness import generator
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import run


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The rank of a triple's tail under two models that were trained on it, and under one that was not."""

    head: str
    relation: str
    tail: str
    rank_with: float
    rank_again: float  #: trained on it too, with another seed: what chance alone moves
    rank_without: float

    def plain(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def draw(graph: Graph, count: int, seed: int) -> Ids:
    """Triples [count, 3] that neighbours may differ in: confidential, if any are, and the last of nothing.

    Neighbours have the same entities and relations (Definition 5), so each of a triple's has another one.
    """
    marks = graph.confidential
    fits = np.ones(len(graph.train), np.bool_) if marks is None or not marks.any() else marks.copy()
    degree = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.n_entities)
    used = np.bincount(graph.train[:, 1], minlength=graph.n_relations)
    fits &= (degree[graph.train[:, [0, 2]]] > 2).all(axis=1) & (used[graph.train[:, 1]] > 1)
    places = np.flatnonzero(fits)
    if len(places) < count:
        raise DataError(f"{len(places)} triples can be taken away from the graph, {count} were asked for")
    drawn: Ids = graph.train[generator(seed, "neighbours").choice(places, count, replace=False)]
    return drawn


def without(graph: Graph, triple: Sequence[int]) -> Graph:
    """The graph with one training triple less; ids stay."""
    stays = (graph.train != np.asarray(triple)).any(axis=1)
    if stays.all():
        raise DataError(f"triple {list(triple)} is not in train")
    marks = graph.confidential
    return replace(graph, train=graph.train[stays], confidential=None if marks is None else marks[stays])


def neighbours(
    experiment: Experiment, federation: Federation, site: str, triples: Ids, home: Path
) -> list[Neighbour]:
    """Train on the whole graph, with two seeds, and on the graph without each triple; rank its tail."""
    if experiment.start is not None:
        raise ConfigError("start: the run's tables have seen every triple already; expected start unset")
    graph = federation[site]
    whole = _ranks(experiment, federation, site, triples, home / "whole")
    other = replace(experiment, seed=experiment.seed + 1)
    again = _ranks(other, federation, site, triples, home / "again")
    found = []
    for number, triple in enumerate(triples):
        smaller = {**federation, site: without(graph, triple.tolist())}
        alone = _ranks(experiment, smaller, site, triple[None], home / f"without-{number}")
        h, r, t = triple.tolist()
        names = graph.entities[h], graph.relations[r], graph.entities[t]
        found.append(Neighbour(*names, whole[number], again[number], alone[0]))
    return found


def _ranks(
    experiment: Experiment, federation: Federation, site: str, triples: Ids, home: Path
) -> list[float]:
    """Tail ranks among all entities but other known answers of the whole graph."""
    folder = RunFolder.create(home, experiment, resume=False)
    run(experiment, folder, torch.device("cpu"), federation)
    tables = folder.load_site(site)[0]
    found = rank(tables, triples, Known.from_graph(federation[site]), sides=[Side.TAIL], site=site)
    ranks = np.empty(len(triples))
    ranks[found.triple] = found.values()
    return ranks.tolist()
