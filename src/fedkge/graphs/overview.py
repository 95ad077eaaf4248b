"""What a federation looks like: the size of each site, and what sites have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedkge.graphs.graph import Federation, Graph, Ids, Mask, Names
from fedkge.graphs.said import blank_apart


@dataclass(frozen=True)
class SiteOverview:
    """One site in numbers."""

    site: str
    entities: int
    relations: int
    train: int
    valid: int
    test: int
    density: float  #: triples per possible triple, m / (|E|² |R|)
    mean_degree: float  #: ends of triples per entity, 2m / |E|
    confidential: int


@dataclass(frozen=True, eq=False)
class Overview:
    """A federation in numbers; what is in common is decided by name."""

    sites: tuple[SiteOverview, ...]
    entities: int  #: different names over all sites
    relations: int
    shared_by_two: int  #: entities that at least two sites have
    shared_by_all: int
    entity_overlap: Ids  # [sites, sites]: names in common; on the diagonal what the site has
    relation_overlap: Ids  # [sites, sites]

    @property
    def mean_entity_overlap(self) -> float:
        """Over all pairs of sites; 0 for a single site."""
        return _mean_pair(self.entity_overlap)

    @property
    def mean_relation_overlap(self) -> float:
        return _mean_pair(self.relation_overlap)


def overview(federation: Federation) -> Overview:
    """Count everything; needs one pass over the names and none over the triples."""
    graphs = list(blank_apart(federation).values())
    entities = _membership([graph.entities for graph in graphs])
    relations = _membership([graph.relations for graph in graphs])
    owners = entities.sum(axis=0)
    return Overview(
        sites=tuple(_site(name, graph) for name, graph in federation.items()),
        entities=entities.shape[1],
        relations=relations.shape[1],
        shared_by_two=int((owners >= 2).sum()),
        shared_by_all=int((owners == len(graphs)).sum()) if len(graphs) > 1 else 0,
        entity_overlap=_in_common(entities),
        relation_overlap=_in_common(relations),
    )


def _site(name: str, graph: Graph) -> SiteOverview:
    triples = sum(map(len, graph.splits().values()))
    possible = graph.n_entities**2 * graph.n_relations
    return SiteOverview(
        site=name,
        entities=graph.n_entities,
        relations=graph.n_relations,
        train=len(graph.train),
        valid=len(graph.valid),
        test=len(graph.test),
        density=triples / possible if possible else 0.0,
        mean_degree=2 * triples / graph.n_entities if graph.n_entities else 0.0,
        confidential=0 if graph.confidential is None else int(graph.confidential.sum()),
    )


def _membership(sites: Sequence[Names]) -> Mask:
    """`[sites, names]`: whether the site has the name."""
    column = {name: i for i, name in enumerate(dict.fromkeys(name for names in sites for name in names))}
    has = np.zeros((len(sites), len(column)), np.bool_)
    for row, names in zip(has, sites, strict=True):
        row[[column[name] for name in names]] = True
    return has


def _in_common(has: Mask) -> Ids:
    return np.array([(has & row).sum(axis=1) for row in has], np.int64).reshape(len(has), len(has))


def _mean_pair(overlap: Ids) -> float:
    sites = len(overlap)
    pairs = sites * (sites - 1)
    return float(overlap.sum() - np.trace(overlap)) / pairs if pairs else 0.0
