"""Persons: entities of a chosen kind, about whom everything that a graph says is protected together.

A triple belongs to the person that is its head or its tail. A triple about two persons belongs to neither: a
training step that used it would depend on both at once, and so it is left out of training (ADR 0020).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from warnings import warn

import numpy as np

from fedkge.errors import DataError, DataWarning, suggest
from fedkge.graphs.graph import Axis, Federation, Graph, Ids, Mask, Split
from fedkge.graphs.prefixes import expanded, full_names
from fedkge.graphs.subgraph import renumbered

NOBODY, SEVERAL = -1, -2  #: owners of triples about no person, and about two


def name_persons(
    federation: Federation,
    prefixes: Sequence[str] = (),
    names: Iterable[str] = (),
    relations: Iterable[str] = (),
) -> dict[str, Graph]:
    """The same graphs, each of which knows its persons.

    Persons are entities whose names begin with one of `prefixes`, those listed in `names`, and the heads of
    triples of `relations`; these add up. What is named but found nowhere is an error, and so are persons
    that are all entities of a site, or that no site has.
    """
    listed = dict.fromkeys(full_names(federation, Axis.ENTITY, names))
    said = dict.fromkeys(full_names(federation, Axis.RELATION, relations))
    prefixes = [_full_prefix(federation, prefix) for prefix in prefixes]
    _check_found(federation, prefixes, listed, said)
    found = {}
    for site, graph in federation.items():
        found[site] = _with(site, graph, _persons(graph, prefixes, listed, said))
    if not any(graph.persons is not None and graph.persons.any() for graph in found.values()):
        raise DataError("persons: no entity of any site is a person; name some")
    return found


def same_persons(federation: Federation, common: Federation) -> dict[str, Graph]:
    """The same graphs, in which whoever is a person at one site is one at all that know the same entity.

    `common` are these graphs under names that say who is the same.
    """
    known = {
        common[site].entities[i]
        for site, graph in federation.items()
        if graph.persons is not None
        for i in np.flatnonzero(graph.persons).tolist()
    }
    masks = {
        site: np.fromiter((name in known for name in graph.entities), np.bool_, graph.n_entities)
        for site, graph in common.items()
    }
    return {site: _with(site, graph, masks[site]) for site, graph in federation.items()}


def warn_of_nobody(federation: Federation) -> None:
    """A site without a person is not protected: perhaps somebody forgot to name them."""
    for site, graph in federation.items():
        if graph.persons is not None and not graph.persons.any():
            warn(f"site {site!r} has no persons: nothing is protected there", DataWarning, stacklevel=2)


def _with(site: str, graph: Graph, persons: Mask) -> Graph:
    if persons.all() and graph.n_entities:
        raise DataError(
            f"persons: all {graph.n_entities:,} entities of site {site!r} are persons, so that none of "
            "its rows could be shared; name fewer"
        )
    return replace(graph, persons=persons)


def _full_prefix(federation: Federation, prefix: str) -> str:
    """The beginning of names as the sites have them, of one that may be written short (`ex:patient/`)."""
    known = [graph.entities for graph in federation.values()]
    if any(name.startswith(prefix) for names in known for name in names):
        return prefix
    return next((long for names in known if (long := expanded(prefix, names.prefixes)) != prefix), prefix)


def _persons(graph: Graph, prefixes: Sequence[str], names: Iterable[str], relations: Iterable[str]) -> Mask:
    wanted = frozenset(names)
    here = tuple(prefixes)
    persons = np.fromiter(
        (name in wanted or (bool(here) and name.startswith(here)) for name in graph.entities),
        np.bool_,
        graph.n_entities,
    )
    own = graph.relations.ids(name for name in relations if name in graph.relations)
    triples = graph.all()
    persons[triples[np.isin(triples[:, 1], own), 0]] = True
    return persons


def _check_found(
    federation: Federation, prefixes: Sequence[str], names: Iterable[str], relations: Iterable[str]
) -> None:
    entities = {name for graph in federation.values() for name in graph.entities}
    known = {name for graph in federation.values() for name in graph.relations}
    for prefix in prefixes:
        if not prefix or not any(name.startswith(prefix) for name in entities):
            raise DataError(f"persons.prefixes: no entity of any site begins with {prefix!r}")
    for name in names:
        if name not in entities:
            raise DataError(f"persons.names: no entity is named {name!r}{suggest(name, sorted(entities))}")
    for name in relations:
        if name not in known:
            raise DataError(f"persons.relations: no relation is named {name!r}{suggest(name, sorted(known))}")


def belongs(graph: Graph, triples: Ids) -> Ids:
    """The entity id of the person that each triple [m, 3] is about, [m]; `NOBODY`, or `SEVERAL` for two."""
    if graph.persons is None:
        return np.full(len(triples), NOBODY, np.int64)
    head, tail = triples[:, 0], triples[:, 2]
    by_head, by_tail = graph.persons[head], graph.persons[tail]
    found = np.where(by_head, head, np.where(by_tail, tail, NOBODY))
    found[by_head & by_tail & (head != tail)] = SEVERAL
    return found


def owners(graph: Graph) -> Ids:
    """The number of the one person that each training triple is about, [m]; -1 for nobody and for two.

    Persons have the numbers 0, 1, ... in the order of their ids, those without a triple included: how many
    persons there are is public, and what is said about them is not.
    """
    if graph.persons is None:
        return np.full(len(graph.train), NOBODY, np.int64)
    number = np.cumsum(graph.persons) - 1
    found = belongs(graph, graph.train)
    return np.where(found >= 0, number[found], NOBODY)


def about_persons(graph: Graph) -> Graph:
    """The same graph; every training triple about a person, or about two, is confidential."""
    marks = belongs(graph, graph.train) != NOBODY
    before = graph.confidential
    return replace(graph, confidential=marks if before is None else before | marks)


def about_nobody(graph: Graph, split: Split | str) -> Ids:
    """The triples of a split that say nothing about a person: those that may be asked about in a message."""
    triples = graph.split(split)
    return triples if graph.persons is None else triples[belongs(graph, triples) == NOBODY]


def unmentioned(graph: Graph) -> dict[Axis, Mask]:
    """Which entities and relations no triple about nobody mentions; none, if no entity is a person.

    Persons are among them. What else is, only triples about persons mention, or none at all. Nothing that is
    said about a person changes these sets.
    """
    entities, relations = np.ones(graph.n_entities, np.bool_), np.ones(graph.n_relations, np.bool_)
    if graph.persons is None or not graph.persons.any():
        return {Axis.ENTITY: ~entities, Axis.RELATION: ~relations}
    for split in Split:
        triples = about_nobody(graph, split)
        entities[triples[:, ::2]], relations[triples[:, 1]] = False, False
    return {Axis.ENTITY: entities, Axis.RELATION: relations}


def without_persons(graph: Graph) -> Graph:
    """The same graph for others to see: other entities in the same order, and triples about nobody."""
    if graph.persons is None:
        return graph
    number = np.cumsum(~graph.persons) - 1
    every = np.arange(graph.n_relations)
    train, valid, test = (renumbered(about_nobody(graph, split), number, every) for split in Split)
    marks = graph.confidential
    if marks is not None:
        marks = marks[belongs(graph, graph.train) == NOBODY]
    names = [name for name, hidden in zip(graph.entities, graph.persons, strict=True) if not hidden]
    return Graph(graph.entities.like(names), graph.relations, train, valid, test, marks)


@dataclass(frozen=True, eq=False)
class Limited:
    """What person-level training is on, and how many confidential triples are left out of it, by reason."""

    graph: Graph
    several: int  #: about two persons
    nobody: int  #: marked, and about no person
    beyond: int  #: more than a person may have


def limited(graph: Graph, most: int, key: bytes) -> Limited:
    """The graph to train on: each confidential triple is about one person, who has at most `most` of them.

    A keyed digest of its names decides whether a triple is kept: at random, the same in every run with the
    same key, and by nothing that is said about anybody else.
    """
    marks = graph.confidential if graph.confidential is not None else np.zeros(len(graph.train), np.bool_)
    owner = owners(graph)
    two = belongs(graph, graph.train) == SEVERAL
    one = marks & (owner >= 0)
    order = np.flatnonzero(one)
    order = order[np.lexsort((digests(graph, order, key), owner[order]))]
    counted = owner[order]
    first = np.concatenate(([True], np.diff(counted) != 0)) if len(counted) else np.zeros(0, np.bool_)
    starts = np.flatnonzero(first)
    rank = np.arange(len(counted)) - np.repeat(starts, np.diff(np.append(starts, len(counted))))
    kept = ~marks
    kept[order[rank < most]] = True
    left = replace(graph, train=graph.train[kept], confidential=marks[kept])
    return Limited(
        left, int((marks & two).sum()), int((marks & ~one & ~two).sum()), int((rank >= most).sum())
    )


def digests(graph: Graph, places: Ids, key: bytes) -> Ids:
    """A keyed digest of each of these training triples, by their names, as a number."""
    entities, relations = graph.entities, graph.relations
    found = [
        hashlib.blake2b(
            f"{entities[h]}\0{relations[r]}\0{entities[t]}".encode(), key=key, digest_size=8
        ).digest()
        for h, r, t in graph.train[places].tolist()
    ]
    return np.frombuffer(b"".join(found), "<i8").astype(np.int64)
