"""How a graph is knit: how many triples its entities are in, and how many neighbours know each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.graphs.graph import Graph, Ids

BINS = 20  #: of clustering coefficients, from 0 to 1
CHUNK = 1 << 21  #: pairs of neighbours looked up at a time
MOST = 1 << 27  #: pairs that are counted; a graph with more has no coefficients


@dataclass(frozen=True, eq=False)
class Structure:
    """A graph's degrees and clustering coefficients as distributions."""

    degrees: Ids  # [d, 2]: a degree, and how many entities have it; ascending
    mean_degree: float
    coefficients: Ids | None  # [BINS]: entities by clustering coefficient; the last bin has 1; None: too many
    mean_clustering: float | None

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "degrees": self.degrees.tolist(),
            "mean_degree": self.mean_degree,
            "coefficients": None if self.coefficients is None else self.coefficients.tolist(),
            "mean_clustering": self.mean_clustering,
        }


def structure(graph: Graph) -> Structure:
    """Over all splits."""
    degree, clustered = degrees(graph), clustering(graph)
    found = np.stack(np.unique(degree, return_counts=True), axis=1)
    mean = float(degree.mean()) if len(degree) else 0.0
    if clustered is None:
        return Structure(found, mean, None, None)
    bins = np.bincount(np.minimum((clustered * BINS).astype(np.int64), BINS - 1), minlength=BINS)
    return Structure(found, mean, bins, float(clustered.mean()) if len(clustered) else 0.0)


def degrees(graph: Graph) -> Ids:
    """Ends of triples at each entity [n]: one that stands at both ends counts twice."""
    return np.bincount(graph.all()[:, (0, 2)].ravel(), minlength=graph.n_entities)


def clustering(graph: Graph) -> NDArray[np.float64] | None:
    """Of every entity [n], the share of pairs of neighbours that are neighbours; 0 below two neighbours.

    Neighbours stand together in some triple, whichever its relation and direction (Watts and Strogatz,
    1998). None where more than `MOST` pairs would have to be looked at.
    """
    n = graph.n_entities
    low, high = np.sort(graph.all()[:, (0, 2)], axis=1).T
    pairs = np.sort((low * n + high)[low != high])
    low, high = np.divmod(pairs[np.flatnonzero(np.diff(pairs, prepend=-1))], max(1, n))
    degree = np.bincount(np.concatenate((low, high)), minlength=n)
    triangles = _triangles(low, high, degree)
    if triangles is None:
        return None
    return 2 * triangles / np.maximum(1, degree * (degree - 1))


def _triangles(low: Ids, high: Ids, degree: Ids) -> Ids | None:
    """How many triangles each entity is in.

    Edges point from the smaller degree to the larger, so that few start at a hub: a triangle is found once,
    as two edges from one entity whose ends are joined.
    """
    n = len(degree)
    order = np.empty(n, np.int64)
    order[np.lexsort((np.arange(n), degree))] = np.arange(n)
    edges = np.sort(np.minimum(order[low], order[high]) * n + np.maximum(order[low], order[high]))
    begin, end = np.divmod(edges, max(1, n))
    last = np.searchsorted(begin, begin, side="right")  # where the edges from the same entity end
    partners = last - np.arange(len(edges)) - 1
    sums = np.append(0, np.cumsum(partners))
    if sums[-1] > MOST:
        return None
    found = np.zeros(n, np.int64)
    at = 0
    while at < len(edges):
        until = max(at + 1, int(np.searchsorted(sums, sums[at] + CHUNK, side="right")) - 1)
        first = np.repeat(np.arange(at, until), partners[at:until])
        second = first + 1 + np.arange(len(first)) - np.repeat(sums[at:until] - sums[at], partners[at:until])
        closing = end[first] * n + end[second]
        place = np.minimum(np.searchsorted(edges, closing), len(edges) - 1)
        closed = edges[place] == closing
        corners = (begin[first[closed]], end[first[closed]], end[second[closed]])
        found += np.bincount(np.concatenate(corners), minlength=n)
        at = until
    return found[order]
