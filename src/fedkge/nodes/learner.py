"""What one site trains: its part of a stack, with what it notes and how it is measured."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from torch import Tensor

from fedkge.evaluation import Ranks, metrics_by_side
from fedkge.graphs.graph import Axis, Ids, Split
from fedkge.models import Tables
from fedkge.nodes.stack import Stack
from fedkge.training.private import Protection

SiteMetrics: TypeAlias = Mapping[str, Mapping[str, Mapping[str, float]]]  #: site -> side -> metric -> value
Fitted: TypeAlias = dict[str, float]  #: what a site notes of a round's training: loss, triples, seconds
First: TypeAlias = Mapping[
    Axis, tuple[Tensor, Tensor]
]  #: places in a table, and the rows to begin with there


class Learner:
    """What one site trains: its part of a stack, which may be all of it."""

    def __init__(self, stack: Stack, name: str) -> None:
        self.stack, self.name = stack, name
        self.site, self.best, self.member = stack.sites[name], stack.bests[name], stack.members[name]

    @property
    def protection(self) -> Protection | None:
        return self.stack.protection

    def share(self, rows: Mapping[Axis, Ids]) -> None:
        self.stack.share(self.name, rows)

    def lay(self, first: First) -> None:
        """Replace some first rows, now and kept; a second table of the same model begins with the same."""
        tables = self.site.tables
        for axis, (at, rows) in first.items():
            for own in (tables, tables.second):
                if own is not None and own.model == tables.model:
                    own.table(axis).index_copy_(0, at.to(tables.device), rows.to(tables.device))
        self.best.copy_(tables)

    def take(self, tables: Tables) -> None:
        """Begin with these tables, second ones too, now and kept."""
        self.site.tables.copy_(tables)
        self.best.copy_(tables)

    def fit(self, round: int) -> Fitted:
        """Train alone for a round."""
        return fitted(self.stack, [self.name], round)[self.name]

    def ranks(self, tables: Tables, split: Split, openly: bool = False) -> dict[str, Ranks]:
        return self.stack.ranks(self.name, tables, split, openly)

    def measure(self, tables: Tables, split: Split, openly: bool = False) -> SiteMetrics:
        """By whose triples -> side (head, tail, both) -> metric."""
        return by_side(self.ranks(tables, split, openly))

    def state(self) -> dict[str, Tensor]:
        return self.stack.state(self.name)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.stack.load_state(self.name, state)


def fitted(stack: Stack, names: Sequence[str], round: int) -> dict[str, Fitted]:
    """Train some members of a stack; what each notes. Those trained in one go share the seconds equally."""
    began = time.perf_counter()
    losses = stack.fit(names, round)
    each = (time.perf_counter() - began) / len(names)
    return {n: {"loss": loss, "triples": stack.visits([n]), "seconds": each} for n, loss in losses.items()}


def by_side(ranks: Mapping[str, Ranks]) -> SiteMetrics:
    """Ranks by site, summed up."""
    return {site: metrics_by_side(found) for site, found in ranks.items()}
