"""A graph made of another's triples, with dense ids of its own.

Ids follow the rule of `indexing`: names count in the order of first appearance, column by column. So a
graph made here has the ids that it would have after being written to files and read again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from fedkge.errors import DataError, suggest
from fedkge.graphs.graph import Axis, Federation, Graph, Ids, Mask, Names
from fedkge.graphs.prefixes import full_names


def subgraph(graph: Graph, train: Ids | Mask, valid: Ids | Mask, test: Ids | Mask) -> Graph:
    """The chosen triples of each split (a mask, or positions in it), marks included."""
    marks = None if graph.confidential is None else graph.confidential[train]
    return regrouped(graph, graph.train[train], graph.valid[valid], graph.test[test], marks)


def regrouped(graph: Graph, train: Ids, valid: Ids, test: Ids, confidential: Mask | None = None) -> Graph:
    """A graph of triples in the ids of `graph`; names that none of them uses are left out."""
    parts = (train, valid, test)
    entity, entities = _dense(graph.entities, [part[:, end] for part in parts for end in (0, 2)])
    relation, relations = _dense(graph.relations, [part[:, 1] for part in parts])
    train, valid, test = (renumbered(part, entity, relation) for part in parts)
    persons = _moved(graph.persons, entity, len(entities))
    return Graph(entities, relations, train, valid, test, confidential, persons)


def without_relations(graph: Graph, names: Collection[str]) -> Graph:
    """The same graph without the triples of these relations; itself if it has none of them."""
    gone = [i for i, name in enumerate(graph.relations) if name in names]
    if not gone:
        return graph
    train, valid, test = (~np.isin(part[:, 1], gone) for part in graph.splits().values())
    return subgraph(graph, train, valid, test)


def dropped(federation: Federation, relations: Sequence[str]) -> dict[str, Graph]:
    """The same graphs without these relations, each of which some site must have."""
    known = {name: "" for graph in federation.values() for name in graph.relations}
    wanted = set(full_names(federation, Axis.RELATION, relations))
    for name in wanted - known.keys():
        raise DataError(f"data.table.drop: no relation is named {name!r}{suggest(name, known)}")
    found = {site: without_relations(graph, wanted) for site, graph in federation.items()}
    for site, graph in found.items():
        if not len(graph.train):
            raise DataError(f"data.table.drop: site {site!r} has no training triple left")
    return found


def merged(graph: Graph) -> Graph:
    """The same graph with every triple in train; what was valid or test has no mark."""
    marks = None
    if graph.confidential is not None:
        marks = np.zeros(sum(map(len, graph.splits().values())), np.bool_)
        marks[: len(graph.train)] = graph.confidential
    return Graph(graph.entities, graph.relations, graph.all(), confidential=marks, persons=graph.persons)


def in_name_order(graph: Graph) -> Graph:
    """The same graph with ids in the order of names, which its triples have no influence on."""
    entity, entities = _sorted(graph.entities)
    relation, relations = _sorted(graph.relations)
    train, valid, test = (renumbered(part, entity, relation) for part in graph.splits().values())
    persons = _moved(graph.persons, entity, len(entities))
    return Graph(entities, relations, train, valid, test, graph.confidential, persons)


def renumbered(triples: Ids, entity: Ids, relation: Ids) -> Ids:
    """The triples `[m, 3]` with id i written as `entity[i]` or `relation[i]`."""
    return np.stack((entity[triples[:, 0]], relation[triples[:, 1]], entity[triples[:, 2]]), axis=1)


def first_positions(ids: Ids, size: int) -> Ids:
    """Where each of the ids `0..size-1` first stands in `ids`; -1 for one that does not."""
    first = np.full(size, -1, np.int64)
    first[ids[::-1]] = np.arange(len(ids))[::-1]  # of repeated indices, the last assignment stays
    return first


def _moved(persons: Mask | None, entity: Ids, size: int) -> Mask | None:
    """The marks of `size` entities, where the entity that had id i has id `entity[i]`, or none (-1)."""
    if persons is None:
        return None
    moved = np.zeros(size, np.bool_)
    moved[entity[persons & (entity >= 0)]] = True
    return moved


def _sorted(names: Names) -> tuple[Ids, Names]:
    """The new id of each old one, and the names in their own order."""
    order = sorted(range(len(names)), key=names.__getitem__)
    new = np.empty(len(names), np.int64)
    new[order] = np.arange(len(names))
    return new, names.like([names[i] for i in order])


def _dense(names: Names, columns: Sequence[Ids]) -> tuple[Ids, Names]:
    """The new id of each old one (-1 where it has none), and the names in the new order."""
    first = first_positions(np.concatenate(columns), len(names))
    used = np.flatnonzero(first >= 0)
    used = used[np.argsort(first[used])]
    new = np.full(len(names), -1, np.int64)
    new[used] = np.arange(len(used))
    return new, names.like([names[i] for i in used.tolist()])
