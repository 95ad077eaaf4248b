"""Private training of small graphs, and an attack on it by one triple that is there or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedkge.graphs.graph import Graph
from fedkge.models import MODELS, Model, Side
from fedkge.privacy import Entry, Ledger, Privacy, Release, Spending
from fedkge.training import Trainer
from fedkge.training.cadence import Cadence
from fedkge.training.confidential import Step
from fedkge.training.private import PrivateTraining, Protection
from fedkge.training.secret import Secret
from fedkge.training.units import Drawn
from small_graphs import first_tables, graph_of

STRICT = Privacy("strict", noise=1.0, delta=1e-5, accountant="rdp")
PAPER = Privacy("paper", noise=1.0, delta=1e-5)


def half_of(graph: Graph, seed: int = 0) -> np.ndarray:
    """Marks of about half of the triples."""
    return np.random.default_rng(seed).random(len(graph.train)) < 0.5


def take(training: PrivateTraining, number: int, drawn: Drawn) -> None:
    """One confidential step."""
    for size, side in training._closed([[Step(number, drawn, Side.TAIL)]]):
        training._take_closed(size, side, False)


@dataclass
class Free:
    """Spending that is not written down, for thousands of trainings."""

    site: str = "site"
    given: int = 0
    entries: list[Entry] = field(default_factory=list)

    def left(self, step: Release, most: int) -> int:
        return most

    def spend(self, release: Release, epoch: int) -> Entry:
        self.entries.append(Entry(self.site, epoch, release, self.given))
        self.given += release.count
        return self.entries[-1]


def private(
    trainer: Trainer,
    graph: Graph,
    marks: np.ndarray,
    privacy: Privacy = STRICT,
    noise: float = 1.0,
    model: Model | None = None,
    secret: bytes = b"s" * 32,
    cadence: Cadence | None = None,
    ledger: Path | None = None,
    owner: np.ndarray | None = None,
    persons: int = 0,
    **options: Any,
) -> PrivateTraining:
    tables = first_tables(model or MODELS["transe"](dim=8), graph)
    spending: Any = Free() if ledger is None else Spending(Ledger(ledger), "site", privacy.budget)
    protection = Protection(
        privacy,
        marks,
        noise,
        cadence or Cadence.of(trainer, privacy, int(marks.sum())),
        Secret(secret),
        spending,
        owner,
        persons,
    )
    return PrivateTraining(trainer, tables, ("site", graph), 0, protection, **options)


def canary_graph() -> tuple[Graph, np.ndarray]:
    """Confidential triples of which the last alone has relation 1, and some unrestricted ones."""
    unrestricted = [(i, 0, (i + 1) % 6) for i in range(4)]
    confidential = [(i, 0, (i + 2) % 6) for i in range(6)] + [(0, 0, 3), (1, 1, 4)]
    graph = graph_of(np.array(unrestricted + confidential), 6, 2)
    return graph, np.arange(12) >= 4


def canary_run(
    privacy: Privacy, noise: float, there: bool, secret: bytes, epochs: int
) -> tuple[Tensor, float]:
    """How the canary's relation row has moved, and how much better the canary scores by it than at first."""
    graph, marks = canary_graph()
    trainer = Trainer(batch_size=4, negatives=2, optimizer="sgd", lr=1.0, sides="tail", loss="logistic")
    # Both worlds have the rate and steps of eight confidential triples. Neighbours are graphs with equally
    # many of them, one of which stands for nothing in one graph: how many there are is public. A triple
    # that is left out has a gradient of 0 in every batch, as one that stands for nothing has.
    cadence = Cadence.of(trainer, privacy, int(marks.sum()))
    if not there:
        graph, marks = graph_of(graph.train[:-1], 6, 2), marks[:-1]
    model = MODELS["transe"](dim=4, margin=2.0)
    training = private(trainer, graph, marks, privacy, noise, model, secret, cadence)
    rows, (_, before) = training.tables.entities.clone(), training.tables.relations.clone()
    training.run(0, epochs)
    after = training.tables.relations[1]
    first, last = (float(model.score(rows[1], relation, rows[4])) for relation in (before, after))
    return after - before, last - first


def lower_bound(hits: int, alarms: int, runs: int, delta: float) -> float:
    """The 95 % lower bound on ε of a test that is right `hits` and wrong `alarms` times, of `runs` each.

    Clopper and Pearson's bounds of both rates, at 97.5 % each; the test and its opposite.
    """
    from scipy.stats import beta

    def low(k: int) -> float:
        return 0.0 if k == 0 else float(beta.ppf(0.025, k, runs - k + 1))

    def high(k: int) -> float:
        return 1.0 if k == runs else float(beta.ppf(0.975, k + 1, runs - k))

    pairs = ((low(hits), high(alarms)), (1 - high(alarms), 1 - low(hits)))
    return max(log((most - delta) / least) if most > delta else 0.0 for most, least in pairs)


def strict_bound(privacy: Privacy, noise: float, runs: int, epochs: int) -> float:
    """ε that an attack on the canary's score proves: a threshold is chosen on one half, used on the other."""
    scores = {
        there: np.array(
            [canary_run(privacy, noise, there, _secret(there, i), epochs)[1] for i in range(2 * runs)]
        )
        for there in (True, False)
    }

    def rates(part: slice, threshold: float) -> tuple[int, int]:
        return tuple(int((scores[there][part] > threshold).sum()) for there in (True, False))  # type: ignore[return-value]

    first, second = slice(0, runs), slice(runs, None)
    best = max(scores[True][first], key=lambda t: lower_bound(*rates(first, t), runs, 1e-5))
    return lower_bound(*rates(second, float(best)), runs, 1e-5)


def touched_bound(privacy: Privacy, noise: float, runs: int, epochs: int) -> float:
    """ε that whether the canary's relation row has moved at all proves."""

    def moved(there: bool) -> int:
        rows = (canary_run(privacy, noise, there, _secret(there, i), epochs)[0] for i in range(runs))
        return sum(bool(row.any()) for row in rows)

    return lower_bound(moved(True), moved(False), runs, 1e-5)


def _secret(there: bool, number: int) -> bytes:
    return f"{there}{number}".encode().ljust(32)
