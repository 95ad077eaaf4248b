"""How good a peer was before it met anybody, and how good it is at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkge.evaluation import Ranks, TypeConstraints, classify, metrics_by_side, rank
from fedkge.graphs.graph import Split
from fedkge.models import Tables
from fedkge.nodes.backtrack import Backtracking
from fedkge.nodes.identity import Identity
from fedkge.nodes.learner import SiteMetrics, by_side
from fedkge.nodes.result import RANKS, packed_ranks, save_tables
from fedkge.nodes.store import write_whole

BEFORE = "before"  #: the tables from before the first conversation, and the folder that they are in


@dataclass(frozen=True)
class Outcome:
    """What was measured."""

    metrics: Mapping[str, SiteMetrics]  #: valid and test of what was kept, and test of what there was before
    views: Mapping[str, Any]  #: before and after: accuracy, and ranks among entities of the right type
    ranks: Mapping[str, Ranks]
    before: Tables


def measured(own: Backtracking) -> Outcome:
    """Ranks and triple classification; test triples are looked at here and nowhere else."""
    learner, before = own.learner, own.best if own.before is None else own.before
    ((site, part),) = learner.member.parts.items()
    ranks = learner.ranks(own.best, Split.TEST)
    metrics = {
        "valid": learner.measure(own.best, Split.VALID),
        "test": by_side(ranks),
        f"test_{BEFORE}": learner.measure(before, Split.TEST),
    }
    known, typed = learner.stack.known[site], TypeConstraints.from_train(part.graph)
    views = {
        name: {
            "accuracy": classify(of, part.graph, seed=own.terms.seed, site=site).accuracy,
            "typed": metrics_by_side(rank(of, part.graph.test, known, candidates=typed))["both"],
        }
        for name, of in ((BEFORE, before), ("after", own.best))
    }
    return Outcome(metrics, views, ranks, before)


def save_outcome(own: Backtracking, identity: Identity, found: Outcome, folder: Path) -> None:
    """Tables and ranks, under the names of the site's graph."""
    ((site, part),) = own.learner.member.parts.items()
    for view, tables in {"": own.best, BEFORE: found.before}.items():
        save_tables(tables, identity.named.get(site, part.graph), folder / view)
    write_whole(folder / RANKS, packed_ranks(found.ranks[site], part.graph.test))
