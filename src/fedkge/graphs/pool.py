"""All sites' graphs as one, as if they could be shared: the other end of the scale from training alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedkge.errors import DataWarning
from fedkge.graphs.graph import Axis, Federation, Graph, Ids, Names


@dataclass(frozen=True, slots=True)
class Pooled:
    """One graph over the union of names, and where each site's ids are in it."""

    graph: Graph
    entities: Mapping[str, Ids]  # site -> pooled id of each local entity
    relations: Mapping[str, Ids]


def pool(federation: Federation) -> Pooled:
    """Equal names are the same thing; a statement that several sites hold stands once.

    What one site trains on and another is measured by is left out of train, with a warning: pooled tables
    would have seen the answer.
    """
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
    splits[0] = _unseen(splits[0], np.concatenate(splits[1:]))
    return Pooled(Graph(entities, relations, *splits), where_e, where_r)


def _unseen(train: Ids, measured: Ids) -> Ids:
    both, group = np.unique(np.concatenate((measured, train)), axis=0, return_inverse=True)
    asked = np.zeros(len(both), bool)
    asked[group[: len(measured)]] = True
    kept = ~asked[group[len(measured) :]]
    if left_out := int((~kept).sum()):
        warnings.warn(
            f"{left_out} statements that one site trains on and another is measured by are left out of the "
            "pooled train",
            DataWarning,
            stacklevel=3,
        )
    return train[kept]


def _union(names: Mapping[str, Names], axis: Axis) -> tuple[Names, dict[str, Ids]]:
    ids: dict[str, int] = {}
    where = {
        site: np.fromiter((ids.setdefault(name, len(ids)) for name in own), np.int64, len(own))
        for site, own in names.items()
    }
    return Names(list(ids), axis), where
