"""How well a triple would rank that was never trained on: estimated from held-out triples of its relation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedkge.evaluation import Counted, Ranks
from fedkge.graphs.graph import Ids, Mask
from fedkge.models import Side

FEW = 5  #: held-out triples of a relation below which those of all relations stand in

Values = NDArray[np.float64]


def ranked(counted: Counted) -> dict[Side, Values]:
    """The rank of each triple's head and tail, in the triples' order."""
    found = counted.ranks()
    return {side: _in_order(found.side(side), len(counted.asked.triples)) for side in Side}


def _in_order(ranks: Ranks, count: int) -> Values:
    values = np.empty(count)
    values[ranks.triple] = ranks.values()
    return values


def levels(
    own: Mapping[Side, Values], forgotten: Ids, held: Mapping[Side, Values], heldout: Ids, random: Generator
) -> dict[Side, Values]:
    """The rank at which each forgotten triple is left alone, by side.

    For every relation, quantiles are drawn, as many as it has forgotten triples, and the held-out ranks at
    these quantiles are dealt out in order: the best-ranked forgotten triple gets the best of them. So
    forgotten triples end up ranked as held-out ones of the same relations are, as a group, and each is moved
    as little as that takes. The same `random` gives the same quantiles: who asks again must not ask for more.
    """
    drawn = random.random(len(forgotten))
    found = {}
    for side in Side:
        level = np.empty(len(forgotten))
        for relation in np.unique(forgotten[:, 1]):
            mine = np.flatnonzero(forgotten[:, 1] == relation)
            alike = held[side][heldout[:, 1] == relation]
            source = np.sort(alike if len(alike) >= FEW else held[side])
            at = np.sort(drawn[mine]) * len(source)
            level[mine[np.argsort(own[side][mine], kind="stable")]] = source[at.astype(np.int64)]
        found[side] = level
    return found


def above(ranks: Mapping[Side, Values], level: Mapping[Side, Values]) -> dict[Side, Mask]:
    """Which triples still rank better than their level."""
    return {side: ranks[side] < level[side] for side in Side}
