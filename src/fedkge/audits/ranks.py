"""Ranks of confidential tails (Han et al., 2022, 4.6), as published and as a test of membership.

The paper draws triples (h, l, t) that are confidential, ranks t for (h, l, ?) under a plain and under a
private model, and compares the two. That the private ranks are worse says that the private model is worse,
not that it hides who was trained on: for that, members are to be compared with non-members under one model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fedkge.audits.base import ATTACKS, Bars, Row, Watching, between, interval, unwatched
from fedkge.audits.candidates import OnTriples, candidates
from fedkge.audits.ranksum import mann_whitney
from fedkge.audits.roc import Numbers, Scored, auc
from fedkge.audits.targets import Target
from fedkge.evaluation import Known, rank
from fedkge.graphs.graph import Graph, Ids
from fedkge.models import Side, Tables
from fedkge.randomness import generator

BINS = 24
PAPER = "the paper's: is a member ranked better by the first model than by the second?"
OURS = "does the model rank members better than others?"
Group: TypeAlias = tuple[str, Sequence[Numbers]]  #: its name, and ranks by site


@ATTACKS.register("ranks")
@dataclass(frozen=True)
class TailRanks(OnTriples):
    """Of two runs the paper's comparison; under each run members against non-members."""

    title = "Ranks of confidential tails"
    caption = (
        "Mann-Whitney U of both groups, and the chance that a rank of the first is the better one; 0.5: none."
    )

    def run(self, targets: Sequence[Target], watch: Watching = unwatched) -> list[Row]:
        tests = []
        if len(targets) == 2:
            first, second = ((f"members, {one.name}", self._ranks(one, critical)) for one in targets)
            tests.append(compared(PAPER, first, second))
        for one in targets:
            members = f"members, {one.name}", self._ranks(one, lambda *of: candidates(*of).members)
            others = f"non-members, {one.name}", self._ranks(one, lambda *of: candidates(*of).others)
            tests.append(compared(OURS, members, others))
        return tests

    def _ranks(self, target: Target, drawn: Callable[[Graph, int, int, str], Ids]) -> list[Numbers]:
        """By site, the ranks of the tails of triples that are drawn there."""
        graphs = {site: target.graph(site) for site in target.secretive}
        triples = {site: drawn(graph, self.sample, self.seed, site) for site, graph in graphs.items()}
        return [_of(tables, graphs[site], triples[site]) for site, tables in target.secretive.items()]

    def words(self, rows: Sequence[Row]) -> str:
        return "\n".join(map(_said, rows))

    def shown(self, row: Row) -> Row:
        return {
            "question": row["question"],
            "first": f"{row['first']} ({row['count_1']:,})",
            "median": f"{row['median_1']:,.1f}",
            "second": f"{row['second']} ({row['count_2']:,})",
            "its median": f"{row['median_2']:,.1f}",
            "first ranks better": interval(row, "below"),
            "U": f"{row['u']:,.0f}",
            "p": f"{row['p']:.2g}" if row["p"] else "< 1e-300",
        }

    def plots(self, rows: Sequence[Row]) -> list[Bars]:
        axes = "rank of the true tail", "triples"
        return [Bars(f"Ranks: {row['first']} and {row['second']}", *axes, **row["histogram"]) for row in rows]


def _said(row: Row) -> str:
    if row["question"] == PAPER:
        p = f"= {row['p']:.2g}" if row["p"] else "< 1e-300"
        return (
            f"The paper's comparison: median ranks {row['median_1']:,.1f} and {row['median_2']:,.1f}, "
            f"p {p}. It says which model ranks better, not whether membership shows."
        )
    return (
        f"{row['first'].removeprefix('members, ')}: a member's tail ranks above a non-member's with "
        f"chance {row['below']:.3f} ({between(row, 'below')}); 0.5 hides it."
    )


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


def compared(question: str, one: Group, two: Group) -> Row:
    """Two groups of ranks, and how far they lie apart.

    `below` is the chance that a rank of the first is lower, which is better: the mean over sites. For U,
    all sites are taken as one.
    """
    first, second = (np.concatenate(ranks) for _, ranks in (one, two))
    test = mann_whitney(first, second)
    below = auc([Scored(-mine, -theirs) for mine, theirs in zip(one[1], two[1], strict=True)])
    row: Row = {"question": question, "first": one[0], "second": two[0]}
    for i, ranks in enumerate((first, second), 1):
        row |= {f"count_{i}": len(ranks), f"median_{i}": float(np.median(ranks))}
    bars = histogram({one[0]: first, two[0]: second})
    return row | below.plain("below") | {"u": test.u, "p": test.p, "histogram": bars}


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
