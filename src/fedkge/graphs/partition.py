"""Deal one graph out to several sites: by relation, by cluster of relations, by triple, in two halves.

Every function takes the whole graph. As in the papers, train, valid and test are first put together and
each site's graph has all its triples in train (`split` divides them again); `keep_split=True` leaves
every triple in the split it came from, so that a site may test entities it never
trained on. The same seed gives the same sites in every process.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedkge.errors import ConfigError, DataError, DataWarning, MissingPackage
from fedkge.graphs.graph import Graph, Ids
from fedkge.graphs.subgraph import merged, subgraph
from fedkge.randomness import generator, key

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


def by_relation(
    graph: Graph, sites: int, seed: int, *, names: Sequence[str] | None = None, keep_split: bool = False
) -> dict[str, Graph]:
    """R: ⌊|R|/K⌋ relations at random for each site, the last takes the rest; triples follow."""
    names = _names(sites, names)
    _check_enough(graph.n_relations, sites, "relations")
    share = graph.n_relations // sites
    site_of = np.empty(graph.n_relations, np.int64)
    order = generator(seed, "partition", "relation").permutation(graph.n_relations)
    site_of[order] = np.minimum(np.arange(graph.n_relations) // share, sites - 1)
    return _deal(graph, site_of[graph.all()[:, 1]], names, keep_split)


def by_cluster(
    graph: Graph, sites: int, seed: int, *, names: Sequence[str] | None = None, keep_split: bool = False
) -> dict[str, Graph]:
    """C (FedLU, Algorithm 2): spectral clustering of relations by the entities they have in common.

    Sites are in the order of their first relation in the graph.
    """
    names = _names(sites, names)
    _check_enough(graph.n_relations, sites, "relations")
    site_of = _clusters(co_occurrence(graph), sites, seed)
    return _deal(graph, site_of[graph.all()[:, 1]], names, keep_split)


def by_triple(
    graph: Graph, sites: int, seed: int, *, names: Sequence[str] | None = None, keep_split: bool = False
) -> dict[str, Graph]:
    """T: triples at random, the same number for each site or one more; sites share relations too."""
    names = _names(sites, names)
    triples = len(graph.all())
    _check_enough(triples, sites, "triples")
    site_of = np.empty(triples, np.int64)
    order = generator(seed, "partition", "triple").permutation(triples)
    site_of[order] = np.arange(triples) * sites // triples
    return _deal(graph, site_of, names, keep_split)


def halves(
    graph: Graph, seed: int, *, names: Sequence[str] = ("A", "B"), keep_split: bool = False
) -> dict[str, Graph]:
    """Two graphs of the same size with entities and relations in common (FKGE, section 4.3).

    The paper only says that a graph is divided into two of the same size. The rule here: the triples of
    each relation are shuffled and dealt in turn to one half and the other. So halves differ by at most
    one triple, in all and per relation, and share every relation that has two triples.
    """
    names = _names(2, names)
    triples = graph.all()
    _check_enough(len(triples), 2, "triples")
    order = generator(seed, "partition", "half").permutation(len(triples))
    order = order[np.argsort(triples[order, 1], kind="stable")]
    site_of = np.empty(len(triples), np.int64)
    site_of[order] = np.arange(len(triples)) % 2
    return _deal(graph, site_of, names, keep_split)


def co_occurrence(graph: Graph) -> csr_matrix:
    """M `[R, R]`: how many entities stand in triples of both relations, at either end; zero diagonal."""
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        raise MissingPackage("scikit-learn", "a clustered partition", "partition") from None
    triples = graph.all()
    entity = np.concatenate((triples[:, 0], triples[:, 2]))
    relation = np.concatenate((triples[:, 1], triples[:, 1]))
    shape = (graph.n_entities, graph.n_relations)
    incidence = csr_matrix((np.ones(len(entity), np.int64), (entity, relation)), shape)  # repeats add up
    incidence.data[:] = 1
    together = (incidence.T @ incidence).tocsr()
    together.setdiag(0)
    together.eliminate_zeros()
    return together


def _clusters(together: csr_matrix, sites: int, seed: int) -> Ids:
    """The cluster of each relation `[R]`, numbered by their first relation."""
    try:
        from scipy.sparse.csgraph import connected_components
        from sklearn.cluster import SpectralClustering
    except ImportError:
        raise MissingPackage("scikit-learn", "a clustered partition", "partition") from None
    parts, _ = connected_components(together, directed=False)
    if parts > sites:
        warnings.warn(
            f"relations fall into {parts} groups without an entity in common; "
            f"which of them share one of {sites} sites is arbitrary",
            DataWarning,
            stacklevel=3,
        )
    clustering = SpectralClustering(
        sites, affinity="precomputed", random_state=key(seed, "partition", "cluster") % 2**32
    )
    with warnings.catch_warnings():  # said above in our words: disconnected; as many clusters as relations
        warnings.simplefilter("ignore")
        labels = clustering.fit_predict(together.toarray().astype(np.float64))
    _, first, cluster = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[cluster]


def _names(sites: int, names: Sequence[str] | None) -> list[str]:
    if sites < 1:
        raise ConfigError(f"sites: expected at least 1, got {sites}")
    names = [str(i) for i in range(sites)] if names is None else list(names)
    if len(names) != sites:
        raise ConfigError(f"names: {len(names)} names for {sites} sites")
    if len(set(names)) != len(names):
        raise ConfigError(f"names: {', '.join(names)}: two sites have the same name")
    return names


def _check_enough(found: int, sites: int, what: str) -> None:
    if found < sites:
        raise ConfigError(f"sites: {sites} sites for a graph of {found} {what}; take at most {found}")


def _deal(graph: Graph, site_of: Ids, names: Sequence[str], keep_split: bool) -> dict[str, Graph]:
    """One graph per site from the site `[m]` of every triple, in the order of `graph.all()`."""
    source = graph if keep_split else merged(graph)
    train, valid, test = np.split(site_of, np.cumsum([len(source.train), len(source.valid)]))
    dealt = {
        name: subgraph(source, train == site, valid == site, test == site) for site, name in enumerate(names)
    }
    for name, part in dealt.items():
        if not len(part.train):
            raise DataError(
                f"site {name}: no training triple among its {len(part.all())}; "
                "take fewer sites, another seed, or split anew instead of keeping the split"
            )
    return dealt
