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

LEAST = 1e-3  #: a gain of the validation MRR that counts late in a run


@METHODS.register("fedlu")
@dataclass(frozen=True)
class FedLU(FedEP):
    """Loss of a triple: `L_loc + L_glo + mu (KL(P_glo || P_loc) + KL(P_loc || P_glo))` (Eqs. 7 to 11).

    P is the softmax over the scores of the triple and its negatives, a teacher is taken as constant, so
    the first divergence moves the local rows alone and the second the global ones. Both tables score with one
    relation table, which learns by the scores of both; in the paper and its code by the local ones alone,
    which the global rows then follow badly (docs/methods.md has figures). The hub averages the shared rows of
    the global tables, as FedE does, and never touches the local entities.

    Measured and validated is the local table; reported beside it are the global one as it is after the site's
    own training (`test_global`, the paper's "global") and with the hub's answer laid over it (`test_hub`,
    which the paper does not report). Local and global tables are each kept at the round where those of all
    sites together validate best. A run goes on while local or global improve.

    Deviations from the authors' code. Both tables take their step from the scores before either; the code
    lets the global one, and the relations that it scores with, follow the local step. A triple's
    subsampling weight holds for its divergence too, as Eq. 11 sums them; the code weighs the loss alone.
    Entities of one site alone do not travel. The code keeps each site's tables at that site's own best round.
    Eq. 7 lacks the 1/2 that L has here and in the code: mu = 1 is what it says with the paper's mu of 2.
    """

    mu: float = 2.0  #: weight of the distillation
    temperature: float = 1.0  #: that scores are divided by in P
    when: Literal["always", "plateau"] = "always"  #: plateau: each way from the first stall on, as the code
    wait: int = 20  #: with plateau: a gain of at most 0.001 from this round on sets the global table learning
    relations: Literal["both", "local"] = "both"  #: by whose scores the relation table learns
    restart: bool = False  #: a new optimizer for the local table and the relations every round
    restart_global: bool = True  #: and for the global table
    measure_hub: bool = True  #: the hub sends its rows at every validation, so that they can be measured

    def __post_init__(self) -> None:
        if self.share == "relations":  # of which there is one table: nothing would reach the global rows
            raise ConfigError("share: expected entities or both for fedlu, got relations")
        if not 0 <= self.mu < inf:
            raise ConfigError(f"mu: expected at least 0, got {self.mu}")
        if not 0 < self.temperature < inf:
            raise ConfigError(f"temperature: expected above 0, got {self.temperature}")
        if self.wait < 0:
            raise ConfigError(f"wait: expected at least 0, got {self.wait}")

    def second(self, model: Model) -> Second:
        taught = self.mu / (1 + self.mu)  # of a local row's loss, what comes from the global one
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
        return trainer.losses(own) + trainer.losses(common) + self.mu * (to_local + to_global)

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
