"""FedLU (Zhu et al., WWW 2023): a local and a global table side by side, which teach each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedkge.errors import ConfigError
from fedkge.exchange.rows import Memory, Update
from fedkge.kernels import distil
from fedkge.methods.base import METHODS, Dials, Second, View
from fedkge.methods.fedep import FedEP
from fedkge.methods.state import Hub, Site
from fedkge.models import Model, Tables
from fedkge.training import Batch, Trainer
from fedkge.training.interference import still

LIMIT = 1e30  #: temperature, and one over it: scores divided by it are still numbers
LEAST = 1e-3  #: a gain of the validation MRR that counts late in a run


@METHODS.register("fedlu")
@dataclass(frozen=True)
class FedLU(FedEP):
    """Loss of a triple: `L_loc + L_glo + mu / 2 (KL(P_glo || P_loc) + KL(P_loc || P_glo))` (Eqs. 7 to 11).

    P is the softmax over the scores of the triple and its negatives. A teacher is taken as constant, so the
    first divergence moves only local rows and the second only global ones. Both tables score with one
    relation table, which learns from the scores of both. In the paper and its code it learns from the local
    scores only, and the global rows fall behind (docs/results-methods.md). The hub averages the shared rows
    of the global tables, as FedE does, and never touches the local ones.

    The local table is validated and measured. Two more tables are reported: the global one after the site's
    own training (`test_global`, the paper's "global"), and the same with the hub's answer written over it
    (`test_hub`, not in the paper). Local and global tables are each kept at the round in which they validate
    best over all sites. A run goes on while local or global improve.

    Deviations from the authors' code. Both tables compute their step from the scores before the step; the
    code steps the local table and the relations first. A triple's subsampling weight applies to its
    divergence too, as Eq. 11 sums them; the code weighs only the loss. Rows that only one site has stay
    there. The code keeps each site's tables at that site's own best round. L has a 1/2 that
    Eq. 7 lacks, so the loss is half of Eq. 11 and mu is the paper's. The code halves L only.
    """

    mu: float = 2.0  #: weight of the distillation, as in Eqs. 7 and 11; 0: none
    temperature: float = 1.0  #: divides the scores before the softmax
    when: Literal["always", "plateau"] = "always"  #: plateau: after the first stall, as in the authors' code
    wait: int = 20  #: with plateau: from this round on, a gain of at most 0.001 counts as none
    relations: Literal["both", "local"] = "both"  #: which scores train the relation table
    restart: bool = False  #: starts every round with a new optimizer for the local table and the relations
    restart_global: bool = True  #: starts every round with a new optimizer for the global table
    measure_hub: bool = True  #: the hub sends its rows at every validation, so that they can be measured

    def __post_init__(self) -> None:
        if self.share == "relations":  # of which there is one table: nothing would reach the global rows
            raise ConfigError("share: expected entities or both for fedlu, got relations")
        if not 0 <= self.mu < inf:
            raise ConfigError(f"mu: expected at least 0, got {self.mu}")
        if not 1 / LIMIT <= self.temperature <= LIMIT:
            raise ConfigError(f"temperature: expected {1 / LIMIT:g} to {LIMIT:g}, got {self.temperature}")
        if self.wait < 0:
            raise ConfigError(f"wait: expected at least 0, got {self.wait}")

    def second(self, model: Model) -> Second:
        taught = self.mu / (2 + self.mu)  # of a local row's loss, what comes from the global one
        return Second(model, relations=False, restart=self.restart_global, taught=taught)

    def dials(self) -> Dials | None:
        return None if self.when == "always" else Plateau(self.wait)

    def objective(self, trainer: Trainer, tables: Tables, batch: Batch, dials: Memory) -> Tensor:
        assert tables.second is not None
        second = still(tables.second) if self.relations == "local" else tables.second
        own, common = (
            one.scores(batch.anchor, batch.relation, batch.index, batch.side) for one in (tables, second)
        )
        to_local, to_global = distil(own, common, self.temperature)
        if self.when == "plateau":
            to_local, to_global = (
                taught * dials[way][batch.site]
                for taught, way in zip((to_local, to_global), Plateau.names, strict=True)
            )
        return trainer.losses(own) + trainer.losses(common) + self.mu / 2 * (to_local + to_global)

    @property
    def measures_answer(self) -> bool:
        return self.measure_hub

    def views(self) -> tuple[View, ...]:
        found = View("global", lambda site, answer: site.travelling, watched=True, second=True)
        return (found, View("hub", _laid, answer=True)) if self.measure_hub else (found,)


@dataclass(frozen=True)
class Plateau(Dials):
    """Switch a way of teaching on, for good: of each table when the other has stalled.

    So is the authors' code: when the global MRR has not improved, the local table learns from it, and the
    other way round. Late, a small gain of either has the global table learn; that the code meant the local
    one too is likely.
    """

    names: ClassVar[tuple[str, ...]] = ("to_local", "to_global")
    wait: int

    def told(self, hub: Hub, site: str) -> Mapping[str, float]:
        on = hub.memory.get("taught", torch.zeros(2, dtype=torch.bool))
        return dict(zip(self.names, on.double().tolist(), strict=True))

    def validated(self, hub: Hub, round: int, mrr: float, views: Mapping[str, float]) -> None:
        now = torch.tensor((mrr, views["global"]), dtype=torch.float64)
        best = hub.memory.get("best", torch.full_like(now, -inf))
        stalled = (now <= best).flip(0)
        stalled[1] |= round >= self.wait and bool((now - best <= LEAST).any())
        hub.memory["best"] = torch.maximum(now, best)
        hub.memory["taught"] = stalled | hub.memory.get("taught", torch.zeros_like(stalled))


def _laid(site: Site, answer: Update) -> Tables:
    """The global table with the hub's answer laid over it."""
    laid = site.overlay(site.merged(answer)).second
    assert laid is not None
    return laid
