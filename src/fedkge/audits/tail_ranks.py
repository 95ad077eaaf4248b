"""Ranks of confidential tails (Han et al., 2022, 4.6), as published and as a test of membership.

The paper draws triples (h, l, t) that are confidential, ranks t for (h, l, ?) under a plain and under a
private model, and compares the two. That the private ranks are worse says that the private model is worse,
not that it hides who was trained on: for that, members are to be compared with non-members under one model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkge.audits.candidates import candidates
from fedkge.audits.ranksum import mann_whitney
from fedkge.audits.roc import Estimate, Numbers, Scored, auc
from fedkge.audits.targets import Target
from fedkge.evaluation import Known, rank
from fedkge.graphs.graph import Graph, Ids
from fedkge.models import Side, Tables
from fedkge.randomness import generator

BINS = 24


@dataclass(frozen=True, eq=False)
class RankTest:
    """Two groups of ranks and how far they lie apart."""

    question: str
    first: str
    second: str
    ranks: tuple[Numbers, Numbers]
    below: Estimate  #: the chance that a rank of the first is lower (better); 0.5: nothing can be told
    u: float
    p: float

    def plain(self) -> dict[str, Any]:
        medians = {f"median_{i}": float(np.median(ranks)) for i, ranks in enumerate(self.ranks, 1)}
        counts = {f"count_{i}": len(ranks) for i, ranks in enumerate(self.ranks, 1)}
        names = {"question": self.question, "first": self.first, "second": self.second}
        tested = self.below.plain("below") | {"u": self.u, "p": self.p}
        bars = histogram({self.first: self.ranks[0], self.second: self.ranks[1]})
        return names | counts | medians | tested | {"histogram": bars}


PAPER = "the paper's: is a member ranked better by the first model than by the second?"
OURS = "does the model rank members better than others?"


def tail_ranks(targets: Sequence[Target], most: int, seed: int) -> list[RankTest]:
    """Of two runs the paper's comparison; under each run members against non-members."""
    tests = []
    if len(targets) == 2:
        names = [f"members, {target.name}" for target in targets]
        groups = [_by_site(target, most, seed) for target in targets]
        tests.append(_compared(PAPER, (names[0], names[1]), *groups))
    for target in targets:
        names = [f"{kind}, {target.name}" for kind in ("members", "non-members")]
        tried = {s: candidates(target.graph(s), most, seed, s) for s in target.secretive}
        members = [_of(t, target.graph(s), tried[s].members) for s, t in target.secretive.items()]
        others = [_of(t, target.graph(s), tried[s].others) for s, t in target.secretive.items()]
        tests.append(_compared(OURS, (names[0], names[1]), members, others))
    return tests


def critical(graph: Graph, most: int, seed: int, site: str) -> Ids:
    """The paper's critical attacks: a random (h, l) of the confidential triples, then a random tail of it.

    Pairs are not repeated. Without marks, every training triple is taken for confidential.
    """
    marks = graph.confidential
    triples = graph.train if marks is None or not marks.any() else graph.train[marks]
    random = generator(seed, site, "critical")
    shuffled = random.permutation(triples)  # the first of each pair is a random one of its tails
    _, first = np.unique(shuffled[:, 0] * graph.n_relations + shuffled[:, 1], return_index=True)
    chosen: Ids = shuffled[random.permutation(first)[:most]]
    return chosen


def _by_site(target: Target, most: int, seed: int) -> list[Numbers]:
    return [
        _of(tables, target.graph(site), critical(target.graph(site), most, seed, site))
        for site, tables in target.secretive.items()
    ]


def _compared(
    question: str, names: tuple[str, str], ours: Sequence[Numbers], theirs: Sequence[Numbers]
) -> RankTest:
    """Sites are put together for U, as if they were one; the chance is the mean over sites."""
    whole = np.concatenate(ours), np.concatenate(theirs)
    test = mann_whitney(*whole)
    below = auc([Scored(-one, -two) for one, two in zip(ours, theirs, strict=True)])
    return RankTest(question, *names, whole, below, test.u, test.p)


def _of(tables: Tables, graph: Graph, triples: Ids) -> Numbers:
    """Ranks of the tails among all entities: an attacker knows no triple to leave out."""
    nothing = Known.of(triples[:0], graph.n_entities, graph.n_relations)
    found = rank(tables, triples, nothing, sides=[Side.TAIL])
    values: Numbers = np.empty(len(triples))
    values[found.triple] = found.values()
    return values


def histogram(groups: Mapping[str, Numbers]) -> dict[str, Any]:
    """Counts of ranks between edges that rise by about equal factors, the same edges for all."""
    highest = max(float(ranks.max()) for ranks in groups.values())
    edges = np.unique(np.floor(np.geomspace(1, highest + 1, BINS + 1)))
    edges[-1] = highest + 1
    counts = {name: np.histogram(ranks, edges)[0].tolist() for name, ranks in groups.items()}
    return {"edges": edges.tolist(), "counts": counts}
