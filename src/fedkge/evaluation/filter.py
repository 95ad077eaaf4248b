"""What is already known: for every question, the sorted list of its answers; built once, by sorting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkge.errors import DataError
from fedkge.evaluation.checks import check_ids
from fedkge.graphs.graph import Graph, Ids, Mask
from fedkge.models import Side

LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Many lists of ids below `n` in one array: `codes` is every key * n + id, strictly increasing."""

    n: int
    codes: Ids
    ids: Ids  # codes % n: ids[lo:hi] is one list, ascending

    @classmethod
    def build(cls, keys: Ids, ids: Ids, n: int) -> Lists:
        codes = np.sort(keys * n + ids)
        new = np.ones(len(codes), np.bool_)
        new[1:] = codes[1:] != codes[:-1]
        codes = codes[new]
        return cls(n, codes, codes % n if n else codes)

    def ranges(self, keys: Ids) -> tuple[Ids, Ids]:
        """Where each key's list starts and ends; an absent key has an empty list."""
        return np.searchsorted(self.codes, keys * self.n), np.searchsorted(self.codes, (keys + 1) * self.n)

    def contains(self, keys: Ids, ids: Ids) -> Mask:
        codes = keys * self.n + ids
        place = np.searchsorted(self.codes, codes)
        found = np.zeros(len(codes), np.bool_)
        inside = place < len(self.codes)
        found[inside] = self.codes[place[inside]] == codes[inside]
        return found

    def missing(self, keys: Ids, order: Ids) -> Ids:
        """The id that is not on the key's list and has `order` such ids before it.

        An id a_j, the j-th on its list, has a_j - j ids before it that are not on the list; these numbers
        never fall, so counting those up to `order` is one binary search per key.
        """
        lo, hi = self.ranges(keys)
        if np.any(order >= self.n - (hi - lo)):
            raise ValueError("a list leaves out fewer ids than were asked for")
        starts = np.searchsorted(self.codes, self.codes // self.n * self.n)
        before = self.codes - (np.arange(len(self.codes)) - starts)
        return order + np.searchsorted(before, keys * self.n + order, side="right") - lo


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Triples as answers: the tails of every (head, relation), the heads of every (relation, tail)."""

    n_entities: int
    n_relations: int
    tails: Lists
    heads: Lists

    @classmethod
    def of(cls, triples: Ids, n_entities: int, n_relations: int) -> Known:
        """From triples `[m, 3]`, in any order, repeated or not."""
        if n_entities * n_entities * max(1, n_relations) > LARGEST:
            raise DataError(
                f"{n_entities:,} entities and {n_relations:,} relations: too many to number pairs"
            )
        check_ids(triples, n_entities, n_relations)
        h, r, t = triples.T
        tails, heads = (
            Lists.build(r * n_entities + anchor, answer, n_entities) for anchor, answer in ((h, t), (t, h))
        )
        return cls(n_entities, n_relations, tails, heads)

    @classmethod
    def from_graph(cls, graph: Graph) -> Known:
        """Every triple of the graph: train, valid and test."""
        return cls.of(graph.all(), graph.n_entities, graph.n_relations)

    def side(self, side: Side) -> Lists:
        """The answers by `key(anchor, relation)` for the asked-for `side`."""
        return self.tails if side is Side.TAIL else self.heads

    def key(self, anchor: Ids, relation: Ids) -> Ids:
        """Keys sort by relation first, so that questions sorted by key share their relation's projections."""
        return relation * self.n_entities + anchor

    def contains(self, triples: Ids) -> Mask:
        h, r, t = triples.T
        return self.tails.contains(self.key(h, r), t)


def anchor_and_answer(triples: Ids, side: Side) -> tuple[Ids, Ids]:
    """The given end and the asked-for end of triples `[m, 3]`."""
    h, t = triples[:, 0], triples[:, 2]
    return (h, t) if side is Side.TAIL else (t, h)
