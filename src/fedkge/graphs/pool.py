"""All sites' graphs as one, as if they could be shared: the other end of the scale from training alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedkge.errors import DataWarning
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
        _, first, group = np.unique(together, axis=0, return_index=True, return_inverse=True)
        if split == "train":
            marks = _marks(federation, group)[np.argsort(first)]
        splits.append(together[np.sort(first)])
    kept = _unseen(splits[0], np.concatenate(splits[1:]))
    splits[0] = splits[0][kept]
    known = marks[kept] if any(graph.confidential is not None for graph in federation.values()) else None
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


def _unseen(train: Ids, measured: Ids) -> Mask:
    both, group = np.unique(np.concatenate((measured, train)), axis=0, return_inverse=True)
    asked = np.zeros(len(both), bool)
    asked[group[: len(measured)]] = True
    kept = ~asked[group[len(measured) :]]
    if left_out := int((~kept).sum()):
        warnings.warn(
            f"{left_out} triples that one site trains on and another is measured by are left out of the "
            "pooled train",
            DataWarning,
            stacklevel=3,
        )
    return kept


def _union(names: Mapping[str, Names], axis: Axis) -> tuple[Names, dict[str, Ids]]:
    ids: dict[str, int] = {}
    where = {
        site: np.fromiter((ids.setdefault(name, len(ids)) for name in own), np.int64, len(own))
        for site, own in names.items()
    }
    return Names(list(ids), axis), where
