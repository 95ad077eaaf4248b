"""The training triples of one or several sites, laid one after another: one site is a stack of one.

Rows of stacked tables follow the same order, so that a stack is trained exactly as one graph is: site s has
the entities from `entity_ends[s - 1]` on, and what it draws depends on its own key, epoch and step alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from fedkge import randomness
from fedkge.errors import DataError, DataWarning
from fedkge.graphs.graph import Graph, Ids
from fedkge.kernels import backend
from fedkge.models import Side


@dataclass(frozen=True, slots=True)
class Answers:
    """The known answers of every query of one side, as `kernels.Draw` wants them."""

    known: Tensor  # int64 [m]: the j-th smallest answer's local id, minus j
    lo: Tensor  # int64 [m]: where the answers of triple i's query start
    hi: Tensor  # int64 [m]

    @classmethod
    def of(cls, triples: Ids, side: Side, first: Ids, owned: Ids) -> Answers:
        """Of distinct triples; triple i's site has `owned[i]` entities from `first[i]` on."""
        return cls(*map(torch.from_numpy, _answers(triples, side, first, owned)))


@dataclass(frozen=True, slots=True)
class Corpus:
    """Triples over stacked ids, who owns them, and their answers per side."""

    names: tuple[str, ...]
    triples: Tensor  # int64 [m, 3], stacked ids
    site: Tensor  # int64 [m], ascending
    local: Tensor  # int64 [m], the triple's number at its site
    sizes: Tensor  # int64 [s], triples per site
    entity_ends: Tensor  # int64 [s]
    relation_ends: Tensor  # int64 [s]
    answers: Mapping[Side, Answers]
    order_keys: Tensor  # uint64 as int64 [s]
    negative_keys: Tensor  # uint64 as int64 [s]

    @classmethod
    def of(cls, sites: Mapping[str, Graph], seed: int, device: torch.device | str = "cpu") -> Corpus:
        for name, graph in sites.items():
            if not len(graph.train):
                raise DataError(f"site {name!r} has no training triples")
        graphs = list(sites.values())
        sizes, entities, relations = (
            np.array(counts, np.int64)
            for counts in zip(*((len(g.train), g.n_entities, g.n_relations) for g in graphs), strict=True)
        )
        site = np.repeat(np.arange(len(graphs)), sizes)
        local = np.arange(sizes.sum()) - _starts(sizes)[site]
        first = _starts(entities)
        shift = np.stack((first, _starts(relations), first), 1)
        triples: Ids = np.concatenate([g.train for g in graphs]) + shift[site]
        keys = [
            np.array([randomness.key(seed, name, purpose) for name in sites], np.uint64).view(np.int64)
            for purpose in ("order", "negatives")
        ]

        def put(array: Ids) -> Tensor:
            return torch.from_numpy(array).to(device)

        return cls(
            names=tuple(sites),
            triples=put(triples),
            site=put(site),
            local=put(local),
            sizes=put(sizes),
            entity_ends=put(np.cumsum(entities)),
            relation_ends=put(np.cumsum(relations)),
            answers={
                side: Answers(*map(put, _answers(triples, side, first[site], entities[site])))
                for side in Side
            },
            order_keys=put(keys[0]),
            negative_keys=put(keys[1]),
        )

    def subsampling(self) -> Tensor:
        """Weights [m] `1 / sqrt(c(h, r) + c(r, t))`; counts start at 4, as Sun et al. (2019) have it."""
        counts = sum(answers.hi - answers.lo + 3 for answers in self.answers.values())
        return torch.as_tensor(counts).to(torch.float32).rsqrt()

    def shuffled(self, epoch: Tensor, visit: int) -> Tensor:
        """Triple numbers, sites one after another, each site's own in a random order of this visit."""
        kernels = backend(self.triples.device)
        return kernels.order_keys(self.order_keys, self.site, self.local, visit, epoch).argsort(stable=True)


def _starts(sizes: Ids) -> Ids:
    starts: Ids = np.cumsum(sizes) - sizes
    return starts


def _ordered(*columns: Ids) -> Ids:
    """As `np.lexsort` has it, first column first; by one number of all columns where it is small enough."""
    sizes = [int(column.max(initial=0)) + 1 for column in columns]
    if prod(sizes) >= 2**63:
        return np.lexsort(columns[::-1])
    return np.ravel_multi_index(columns, tuple(sizes)).argsort(kind="stable")


def _answers(triples: Ids, side: Side, first: Ids, owned: Ids) -> tuple[Ids, Ids, Ids]:
    """known, lo, hi of `Answers`; triple i's site has `owned[i]` entities from `first[i]` on."""
    h, r, t = triples.T
    anchor, answer = (h, t) if side is Side.TAIL else (t, h)
    order = _ordered(anchor, r, answer)
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(anchor[order]) != 0) | (np.diff(r[order]) != 0)
    group = np.cumsum(new) - 1
    starts = np.flatnonzero(new)
    stops = np.append(starts[1:], len(order))
    known = (answer - first)[order] - (np.arange(len(order)) - starts[group])
    lo, hi = np.empty_like(known), np.empty_like(known)
    lo[order], hi[order] = starts[group], stops[group]
    if full := int((hi - lo >= owned).sum()):
        warnings.warn(
            f"{full} training triples have no {side} that is not an answer already; their negatives are "
            "drawn from all entities of the site",
            DataWarning,
            stacklevel=4,
        )
    return known, lo, hi
