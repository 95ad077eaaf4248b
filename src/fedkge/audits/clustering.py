"""Whether training keeps who is like whom (Han et al., 2022, 4.4): k-means of rows, compared by NMI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import ConfigError, DataError, MissingPackage
from fedkge.graphs.graph import Graph, Names
from fedkge.randomness import key

Labels = NDArray[np.int32]  # [n]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Normalised mutual information between clusterings of two groups of models: 1 the same, 0 unrelated."""

    first: str
    second: str
    k: int
    mean: float
    std: float  #: of the sample; 0 of a single pair
    pairs: int

    def plain(self) -> dict[str, Any]:
        names = {"first": self.first, "second": self.second, "k": self.k}
        return names | {"nmi": self.mean, "nmi_std": self.std, "pairs": self.pairs}


def agreements(
    models: Mapping[str, Sequence[NDArray[np.floating]]], ks: Sequence[int], repeats: int, seed: int
) -> list[Agreement]:
    """Cluster the rows [n, width] of every group's models, and compare groups.

    The i-th clustering of a group is of its i-th model (counted round), started anew. Two groups are compared
    by all pairs of a clustering of one and a clustering of the other, as in the paper's Table 4: 25 pairs
    with 5 repeats. A group is compared with itself by all pairs of different clusterings. That says how much
    of a difference is k-means and chance.
    """
    if repeats < 2:
        raise ConfigError(f"--repeats: expected at least 2, got {repeats}")
    found = []
    for k in ks:
        labels = {name: _clusterings(rows, k, repeats, seed) for name, rows in models.items()}
        for first, second in [(name, name) for name in labels] + list(combinations(labels, 2)):
            if first == second:
                pairs = list(combinations(labels[first], 2))
            else:
                pairs = list(product(labels[first], labels[second]))
            values = np.array([nmi(*pair) for pair in pairs])
            spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
            found.append(Agreement(first, second, k, float(values.mean()), spread, len(values)))
    return found


def _clusterings(models: Sequence[NDArray[np.floating]], k: int, repeats: int, seed: int) -> list[Labels]:
    try:
        from sklearn.cluster import KMeans
    except ImportError:
        raise MissingPackage("scikit-learn", "clustering", "partition") from None
    if not 2 <= k <= len(models[0]):
        raise ConfigError(f"--k: expected from 2 to the {len(models[0])} entities chosen, got {k}")
    return [
        KMeans(k, n_init=10, random_state=key(seed, k, i, "k-means") % 2**32).fit_predict(
            models[i % len(models)]
        )
        for i in range(repeats)
    ]


def nmi(first: Labels, second: Labels) -> float:
    """Mutual information over the mean of both entropies; 1 where neither says anything."""
    joint = np.zeros((first.max() + 1, second.max() + 1))
    np.add.at(joint, (first, second), 1 / len(first))
    entropies = [_entropy(joint.sum(axis)) for axis in (1, 0)]
    mutual = sum(entropies) - _entropy(joint.ravel())
    return float(2 * mutual / sum(entropies)) if sum(entropies) > 0 else 1.0


def _entropy(p: NDArray[np.float64]) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def chosen(graph: Graph, relation: str | None, side: str, names: Sequence[str] | None) -> list[str]:
    """The entities to cluster: those listed, or the heads or tails of a relation, or all."""
    if names is not None:
        unknown = [name for name in names if name not in graph.entities]
        if unknown:
            graph.entities.id(unknown[0])  # says which, and what is near
        return list(dict.fromkeys(names))
    if relation is None:
        return list(graph.entities)
    triples = graph.all()
    triples = triples[triples[:, 1] == graph.relations.id(relation)]
    return [graph.entities[i] for i in np.unique(triples[:, 0 if side == "head" else 2]).tolist()]


def rows_of(
    names: Sequence[str], known: Names, table: NDArray[np.floating], run: str
) -> NDArray[np.floating]:
    """The rows of these names."""
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise DataError(f"{run}: has no row of {missing!r}; expected runs whose sites know the same entities")
    return table[known.ids(names)]
