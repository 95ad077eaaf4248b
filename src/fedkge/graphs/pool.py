"""All sites' graphs as one, as if they could be shared: the other end of the scale from training alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedkge.graphs.graph import Axis, Federation, Graph, Ids, Mask, Names


@dataclass(frozen=True, slots=True)
class Pooled:
    """One graph over the union of names, and where each site's ids are in it."""

    graph: Graph
    entities: Mapping[str, Ids]  # site -> pooled id of each local entity
    relations: Mapping[str, Ids]


def pool(federation: Federation) -> Pooled:
    """Equal names are the same thing; a triple that several sites hold stands once, and is confidential if
    it is at any of them.

    What one site trains on and another is measured by is in train: federated sites learn from it too.
    """
    entities, where_e, relations, where_r = united(federation)
    splits = []
    for split in ("train", "valid", "test"):
        parts = []
        for site, graph in federation.items():
            h, r, t = graph.split(split).T
            parts.append(np.stack((where_e[site][h], where_r[site][r], where_e[site][t]), 1))
        together = np.concatenate(parts)
        _, first, group = np.unique(together, axis=0, return_index=True, return_inverse=True)
        if split == "train":
            marks = _marks(federation, group)[np.argsort(first)]
        splits.append(together[np.sort(first)])
    known = marks if any(graph.confidential is not None for graph in federation.values()) else None
    return Pooled(Graph(entities, relations, splits[0], splits[1], splits[2], known), where_e, where_r)


def _marks(federation: Federation, group: Ids) -> Mask:
    """Which distinct training triples are marked by any site; `group` tells equal ones."""
    marked = [
        np.zeros(len(graph.train), np.bool_) if graph.confidential is None else graph.confidential
        for graph in federation.values()
    ]
    marks = np.zeros(group.max(initial=-1) + 1, np.bool_)
    marks[group[np.concatenate(marked)]] = True
    return marks


def united(federation: Federation) -> tuple[Names, dict[str, Ids], Names, dict[str, Ids]]:
    """The union of entity names, where each site's ids are in it, and the same for relations."""
    entities, where_e = _union({site: graph.entities for site, graph in federation.items()}, Axis.ENTITY)
    relations, where_r = _union({site: graph.relations for site, graph in federation.items()}, Axis.RELATION)
    return entities, where_e, relations, where_r


def _union(names: Mapping[str, Names], axis: Axis) -> tuple[Names, dict[str, Ids]]:
    ids: dict[str, int] = {}
    where = {
        site: np.fromiter((ids.setdefault(name, len(ids)) for name in own), np.int64, len(own))
        for site, own in names.items()
    }
    return Names(list(ids), axis), where
