"""All sites' graphs as one, as if they could be shared: the other end of the scale from training alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedkge.graphs.graph import Axis, Federation, Graph, Ids, Names


@dataclass(frozen=True, slots=True)
class Pooled:
    """One graph over the union of names, and where each site's ids are in it."""

    graph: Graph
    entities: Mapping[str, Ids]  # site -> pooled id of each local entity
    relations: Mapping[str, Ids]


def pool(federation: Federation) -> Pooled:
    """Equal names are the same thing; a statement that several sites hold stands once."""
    entities, where_e = _union({site: graph.entities for site, graph in federation.items()}, Axis.ENTITY)
    relations, where_r = _union({site: graph.relations for site, graph in federation.items()}, Axis.RELATION)
    splits = []
    for split in ("train", "valid", "test"):
        parts = []
        for site, graph in federation.items():
            h, r, t = graph.split(split).T
            parts.append(np.stack((where_e[site][h], where_r[site][r], where_e[site][t]), 1))
        together = np.concatenate(parts)
        _, first = np.unique(together, axis=0, return_index=True)
        splits.append(together[np.sort(first)])
    return Pooled(Graph(entities, relations, *splits), where_e, where_r)


def _union(names: Mapping[str, Names], axis: Axis) -> tuple[Names, dict[str, Ids]]:
    ids: dict[str, int] = {}
    where = {
        site: np.fromiter((ids.setdefault(name, len(ids)) for name in own), np.int64, len(own))
        for site, own in names.items()
    }
    return Names(list(ids), axis), where
