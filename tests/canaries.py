"""Canaries: a unit that is there or not, in private steps whose clean gradients an attacker knows exactly.

Everyone else's triples are known, rows are chosen, every unit is in every step. Rows are so far apart that
positives are as wrong as can be and negatives as right: slopes are 1/2 and 0, whatever negatives are drawn.
So a unit's gradient is known, and what a step adds to it is noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import norm
from torch import Tensor

from fedkge.graphs.graph import Axis, Graph
from fedkge.models import MODELS, Tables
from fedkge.privacy import Privacy
from fedkge.training import Trainer
from fedkge.training.cadence import Cadence
from fedkge.training.private import PrivateTraining, Protection
from fedkge.training.secret import Secret
from fedkge.training.units import Units
from private_training import Free, lower_bound, take
from small_graphs import graph_of

DELTA = 1e-5
PERSONS = 6  #: the last of them is the canary
RATE = {"adam": 2.0**-7, "adagrad": 2.0**-7, "sgd": 1.0}


def noise_for(epsilon: float) -> float:
    """The least noise multiplier of one step on everything that has this ε at DELTA: the exact one."""

    def excess(sigma: float) -> float:
        mu = 1 / sigma
        first, second = norm.cdf(mu / 2 - epsilon / mu), norm.cdf(-mu / 2 - epsilon / mu)
        return float(first - np.exp(epsilon) * second - DELTA)

    return float(brentq(excess, 0.05, 50))


@dataclass(frozen=True)
class Canary:
    """A site whose last unit is there or not."""

    optimizer: str
    each: int = 1  #: triples of a unit; 1: at triple level
    hostile: bool = False  #: the hub sends rows so large that a step of Adam's is one step of their grid
    width: int = 16

    @property
    def graph(self) -> Graph:
        """Unit u: its own entity, its own relation, and tails of its own."""
        triples = [(u, u, PERSONS + u * self.each + i) for u in range(PERSONS) for i in range(self.each)]
        return graph_of(np.array(triples), PERSONS * (1 + self.each), PERSONS)

    def training(self, noise: float, secret: bytes) -> PrivateTraining:
        graph = self.graph
        trainer = Trainer(
            batch_size=PERSONS,
            negatives=2,
            optimizer=self.optimizer,
            lr=RATE[self.optimizer],
            sides="tail",
            loss="logistic",
        )
        privacy = Privacy("strict", noise=1.0, delta=DELTA, accountant="rdp")
        owner = None
        if self.each > 1:
            privacy = replace(privacy, unit="entity", per_person=self.each)
            owner = graph.train[:, 1].copy()
        cadence = Cadence.of(trainer, privacy, PERSONS)
        marks = np.ones(len(graph.train), bool)
        own = (cadence, Secret(secret.ljust(32)), Free(), owner, PERSONS if self.each > 1 else 0)
        tables = self.rows()
        return PrivateTraining(trainer, tables, ("site", graph), 0, Protection(privacy, marks, noise, *own))

    def rows(self) -> Tables:
        """The rows before the step: tails far from everything else."""
        model, graph = MODELS["transe"](dim=self.width, margin=1.0), self.graph
        large = 0.9 * 2.0**17 if self.hostile else 1.0
        entities = torch.full((graph.n_entities, self.width), large)
        entities[PERSONS:] *= -1
        return Tables(model, entities, torch.full((PERSONS, self.width), large))

    def moves(self, training: PrivateTraining, there: bool, runs: int) -> Tensor:
        """How far each run's single step moves the canary's rows, [runs, numbers]."""
        units = training.units if there else without_last(training.units)
        tables, before = training.tables, {axis: training.tables.table(axis).clone() for axis in Axis}
        own = {
            Axis.ENTITY: [PERSONS - 1, *range(len(before[Axis.ENTITY]) - self.each, len(before[Axis.ENTITY]))]
        }
        own[Axis.RELATION] = [PERSONS - 1]
        found = []
        for number in range(runs):
            training.restart()
            for axis, rows in before.items():
                tables.table(axis).copy_(rows)
            take(training, number, units.drawn(np.arange(len(units))))
            moved = [(before[axis][rows] - tables.table(axis)[rows]).flatten() for axis, rows in own.items()]
            found.append(torch.cat(moved))
        return torch.stack(found)

    @property
    def direction(self) -> Tensor:
        """The canary's gradient, of length 1: of its entity, its tails, its relation."""
        parts = torch.tensor([self.each, *[-1.0] * self.each, self.each])
        return torch.nn.functional.normalize(parts.repeat_interleave(self.width), dim=0)


def without_last(units: Units) -> Units:
    """The same, the last unit standing for nothing."""
    return Units(units.places[: units.starts[-2]], units.starts[:-1], units.most)


def bound(canary: Canary, noise: float, runs: int) -> float:
    """ε that a test proves which asks whether the canary's rows moved along its gradient.

    The threshold is fixed beforehand: 2.5 standard deviations of the statistic where there is no canary.
    """
    counts = []
    for there in (True, False):
        training = canary.training(noise, b"in" if there else b"out")
        moved = canary.moves(training, there, runs)
        if canary.optimizer != "sgd" or canary.hostile:
            moved = moved.sign()  # an adaptive optimizer's first step tells the sign alone
            deviation = 1.0
        else:
            deviation = RATE["sgd"] * noise / PERSONS
        counts.append(int(((moved @ canary.direction) / deviation > 2.5).sum()))
    return lower_bound(*counts, runs, DELTA)
