"""Which training triples are confidential, and which are to be forgotten.

Marks are given to a whole federation, since one list usually speaks of all sites, and add to those that are
there. Whatever is named but found nowhere is an error: a triple left unmarked by a typing mistake
would be trained on in the open.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedkge.errors import ConfigError, DataError, DataWarning, suggest
from fedkge.graphs.graph import Axis, Federation, Graph, Ids, Mask, Names
from fedkge.graphs.persons import NOBODY, belongs
from fedkge.graphs.prefixes import full_names
from fedkge.graphs.split import spare
from fedkge.graphs.streams import check_regular
from fedkge.graphs.subgraph import regrouped, renumbered
from fedkge.randomness import generator


def read_names(path: Path) -> list[str]:
    """The names in a file with one per line; empty lines are skipped."""
    try:
        check_regular(path)
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    names = [line for line in lines if line.strip()]
    if not names:
        raise DataError(f"{path}: expected a name per line, found none")
    return names


def mark_relations(federation: Federation, relations: Iterable[str]) -> dict[str, Graph]:
    """Every training triple of these relations is confidential, at every site that has them."""
    wanted = list(dict.fromkeys(full_names(federation, Axis.RELATION, relations)))
    if not wanted:
        raise DataError("no relation is named: nothing to mark")
    for name in wanted:
        if not any(name in graph.relations for graph in federation.values()):
            known = sorted({relation for graph in federation.values() for relation in graph.relations})
            raise DataError(f"no relation is named {name!r}{suggest(name, known)}")
    marked, found = {}, set()
    for site, graph in federation.items():
        here = [name for name in wanted if name in graph.relations]
        chosen = np.isin(graph.train[:, 1], graph.relations.ids(here))
        found |= {graph.relations[i] for i in np.unique(graph.train[chosen, 1]).tolist()}
        marked[site] = _marked(graph, chosen)
    for name in wanted:
        if name not in found:
            raise DataError(f"relation {name!r} has no training triple to mark, only valid or test ones")
    return marked


def mark_triples(federation: Federation, listed: Graph) -> dict[str, Graph]:
    """The triples of `listed`, whichever its split, are confidential at every site that trains on them."""
    wanted = listed.all()
    if not len(wanted):
        raise DataError("no triple is listed: nothing to mark")
    found = np.zeros(len(wanted), np.bool_)
    marked = {}
    for site, graph in federation.items():
        there, here = _codes(listed, graph)
        found |= np.isin(there, here)
        marked[site] = _marked(graph, np.isin(here, there))
    if not found.all():
        head, relation, tail = wanted[np.argmin(found)].tolist()
        first = (listed.entities[head], listed.relations[relation], listed.entities[tail])
        raise DataError(
            f"{int((~found).sum()):,} of {len(wanted):,} listed triples are in no site's train; the first is "
            f"{first!r}. Only training triples can be marked: mark the data with `fedkge data mark`, then "
            "divide it with `fedkge data split --keep-confidential`"
        )
    return marked


def mark_share(federation: Federation, share: float, seed: int) -> dict[str, Graph]:
    """A random `share` of each site's training triples, rounded to the nearest, is confidential.

    Where a graph knows its persons, it is a share of the triples about nobody.
    """
    marked = {}
    for site, graph in federation.items():
        places = np.flatnonzero(belongs(graph, graph.train) == NOBODY)
        count = _count(len(places), share, site)
        chosen = np.zeros(len(graph.train), np.bool_)
        chosen[places[generator(seed, site, "confidential").permutation(len(places))[:count]]] = True
        marked[site] = _marked(graph, chosen)
    return marked


@dataclass(frozen=True, eq=False)
class Forgetting:
    """What is to be forgotten, and the graph without it; both have the ids of the graph they come from."""

    forgotten: Ids  # [f, 3]
    retained: Graph
    confidential: Mask | None = None  # [f]: which of `forgotten` are marked

    def as_graph(self) -> Graph:
        """What is to be forgotten as a graph of its own, for writing; its ids are new."""
        nothing = self.forgotten[:0]
        return regrouped(self.retained, self.forgotten, nothing, nothing, self.confidential)


def forget(federation: Federation, share: float = 0.01, seed: int = 0) -> Mapping[str, Forgetting]:
    """A random `share` of each site's training triples to forget.

    Every entity and relation of train keeps a retained triple there. When that leaves fewer than
    the share, a warning says so; when it leaves none, it is an error.
    """
    chosen = {}
    for site, graph in federation.items():
        count = _count(len(graph.train), share, site)
        out = np.sort(spare(graph.train, count, generator(seed, site, "forget")))
        if not len(out):
            raise DataError(f"site {site}: every training triple is the last one of an entity or relation")
        if len(out) < count:
            warnings.warn(
                f"site {site}: {len(out):,} triples to forget instead of {count:,}; "
                "every other one is the last of an entity or relation",
                DataWarning,
                stacklevel=2,
            )
        stays = np.ones(len(graph.train), np.bool_)
        stays[out] = False
        marks = graph.confidential
        retained = replace(
            graph, train=graph.train[stays], confidential=None if marks is None else marks[stays]
        )
        chosen[site] = Forgetting(graph.train[out], retained, None if marks is None else marks[out])
    return chosen


def _marked(graph: Graph, chosen: Mask) -> Graph:
    before = graph.confidential
    return replace(graph, confidential=chosen if before is None else before | chosen)


def _count(there: int, share: float, site: str) -> int:
    if not 0 < share <= 1:
        raise ConfigError(f"share: expected above 0 and at most 1, got {share}")
    count = round(share * there)
    if not count:
        raise DataError(f"site {site}: a share of {share} of {there} training triples is none")
    return count


def _codes(listed: Graph, graph: Graph) -> tuple[Ids, Ids]:
    """One number per triple of `listed` and of `graph.train`, -1 where `listed` lacks one of its names."""
    entity = _translate(graph.entities, Names(map(graph.entities.full, listed.entities)))
    relation = _translate(graph.relations, Names(map(graph.relations.full, listed.relations)))
    here = renumbered(graph.train, entity, relation)
    scale = np.array([listed.n_relations * listed.n_entities, listed.n_entities, 1])
    return listed.all() @ scale, np.where((here >= 0).all(axis=1), here @ scale, -1)


def _translate(names: Names, into: Names) -> Ids:
    """The id in `into` of every name, -1 where it has none."""
    return np.fromiter((into.id(name) if name in into else -1 for name in names), np.int64, len(names))
