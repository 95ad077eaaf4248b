"""Whom an attack is tried on: triples of train, and triples of the same kind that no training saw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkge.audits.base import Attack
from fedkge.errors import ConfigError, DataError
from fedkge.graphs.graph import Graph, Ids, Mask
from fedkge.randomness import generator


@dataclass(frozen=True)
class OnTriples(Attack):
    """An attack that is tried on triples which are drawn at random."""

    sample: int = 1000  #: members, and as many non-members, that are tried at a site
    seed: int = 0  #: draws these triples

    def __post_init__(self) -> None:
        if self.sample < 1:
            raise ConfigError(f"sample: expected at least 1, got {self.sample}")


@dataclass(frozen=True, eq=False)
class Candidates:
    """Members and non-members, equally many of each relation."""

    members: Ids  # [n, 3]
    others: Ids  # [n, 3]
    confidential: bool  #: whether members are confidential triples, and not simply of train


def candidates(graph: Graph, most: int, seed: int, site: str) -> Candidates:
    """`drawn`; an error where there are none."""
    found = drawn(graph, most, seed, site)
    if not len(found.members):
        kind = "confidential" if found.confidential else "training"
        mend = "; divide the data first and mark it then" if found.confidential else ""
        raise DataError(
            f"site {site!r}: no relation has both {kind} triples that could have been held out and "
            f"held-out ones; an attack needs both{mend}"
        )
    return found


def drawn(graph: Graph, most: int, seed: int, site: str) -> Candidates:
    """At most `most` of each, drawn at random.

    Members are training triples, of a graph with marks the confidential ones. Non-members are valid and
    test. Two things would tell them apart that have nothing to do with memory, and are removed: relations
    (each is drawn equally often on both sides), and that a split never holds out the last triple of an
    entity or relation (members without which train would lose one are left out).
    """
    marks = graph.confidential
    confidential = marks is not None and bool(marks.any())
    chosen = _spare(graph.train) & (marks if confidential and marks is not None else True)
    members, others = graph.train[chosen], np.concatenate((graph.valid, graph.test))
    random = generator(seed, site, "attack")
    members, others = random.permutation(members), random.permutation(others)
    counts = [np.bincount(side[:, 1], minlength=graph.n_relations) for side in (members, others)]
    each = np.minimum(*counts)
    members, others = (side[_nth(side[:, 1]) < each[side[:, 1]]] for side in (members, others))
    if len(members) > most:  # of both sides alike, so that each relation stays even
        members, others = (_by_relation(side)[_some(len(side), most)] for side in (members, others))
    return Candidates(members, others, confidential)


def _spare(train: Ids) -> Mask:
    """Whose entities and relation have another training triple."""
    head, relation, tail = train.T
    degree = np.bincount(np.concatenate((head, tail[tail != head])), minlength=train.max(initial=0) + 1)
    used = np.bincount(relation)
    spare: Mask = (degree[head] > 1) & (degree[tail] > 1) & (used[relation] > 1)
    return spare


def _nth(relation: Ids) -> Ids:
    """How many equal numbers stand before each."""
    order = np.argsort(relation, kind="stable")
    ordered = relation[order]
    first = np.searchsorted(ordered, ordered)
    nth = np.empty_like(relation)
    nth[order] = np.arange(len(relation)) - first
    return nth


def _by_relation(side: Ids) -> Ids:
    return side[np.argsort(side[:, 1], kind="stable")]


def _some(n: int, most: int) -> Ids:
    """`most` places of n, evenly spread."""
    return np.arange(most) * n // most
