"""Unlearning at a site (FedLU, Zhu et al., WWW 2023, 4.2): interference, then decay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, Literal

import numpy as np
import torch

from fedkge.errors import ConfigError
from fedkge.evaluation import Asked, Known
from fedkge.graphs.graph import Graph, Ids, Mask
from fedkge.methods.base import Method
from fedkge.models import Side, Tables
from fedkge.randomness import generator, key
from fedkge.training import Corpus, Trainer
from fedkge.training.decay import Decay
from fedkge.training.interference import Confusion, Interference, avoiding
from fedkge.training.levels import Values, above, levels, ranked

EVERY = 2  #: epochs between two looks at who has reached the level


@dataclass(frozen=True)
class Unlearn:
    """How triples are unlearned."""

    mode: Literal["target", "paper", "exact"] = "target"  #: paper: in full; exact: trained again without them
    epochs: int | None = None  #: of interference; unset: 10 in mode paper, at most 20 in mode target; 0: none
    decay: int | None = (
        None  #: epochs of decay; unset: 10 in mode paper; in mode target the rounds that follow are it
    )
    rounds: int | None = None  #: that follow, with all sites; unset: 2 in mode paper, 3 in mode target
    lr: float | None = None  #: learning rate of interference and decay; unset: the run's
    confusion: Confusion = field(default_factory=Confusion)

    def __post_init__(self) -> None:
        for name in ("epochs", "decay", "rounds"):
            value, least = getattr(self, name), int(name == "rounds")
            if value is not None and value < least:
                raise ConfigError(f"{name}: expected at least {least}, got {value}")
        if self.lr is not None and not 0 < self.lr < inf:
            raise ConfigError(f"lr: expected a number above 0, got {self.lr}")

    @property
    def batches(self) -> int:
        """Triples of a step: in mode target who has reached the level is looked up after every pass."""
        given = self.confusion.batch_size
        return given if given is not None else 64 if self.mode == "paper" else 256

    def count(self, name: Literal["epochs", "decay", "rounds"]) -> int:
        """An option that has another default in each mode."""
        given: int | None = getattr(self, name)
        paper = {"epochs": 10, "decay": 10, "rounds": 2}
        target = {"epochs": 20, "decay": 0, "rounds": 3}
        return given if given is not None else (paper if self.mode == "paper" else target)[name]


@dataclass(frozen=True, eq=False)
class Lesson:
    """What one site has to forget."""

    site: str
    graph: Graph  #: the retained triples, in ids in which the forgotten ones can be told
    forgotten: Ids  # [m, 3]: training triples


class Forgetting:
    """A lesson at work on a site's tables: it changes rows, and remembers nothing afterwards."""

    def __init__(
        self, how: Unlearn, trainer: Trainer, lesson: Lesson, tables: Tables, seed: int, captured: bool = True
    ) -> None:
        self.how, self.lesson, self.tables, self.seed = how, lesson, tables, seed
        self.trainer, self.captured = replace(trainer, lr=how.lr or trainer.lr), captured
        known = Known.from_graph(lesson.graph)
        self.heldout = _alike(lesson.graph.valid, lesson.forgotten)
        self.asked, self.asked_heldout = (
            Asked.of(triples, known, tables.device) for triples in (lesson.forgotten, self.heldout)
        )
        self.steps = Interference(
            how.confusion,
            how.batches,
            self.trainer,
            tables,
            lesson.site,
            lesson.graph,
            lesson.forgotten,
            seed,
            captured,
        )

    def interfere(self, turn: int) -> dict[str, Any]:
        """Push forgotten triples down; in mode target only those that rank better than their level.

        `turn` numbers the calls: each draws its own negatives.
        """
        how = self.how
        passes = how.count("epochs") * how.confusion.passes
        first = turn * passes
        self.steps.restart()
        if not passes:
            return {"epochs": 0}
        if how.mode == "paper":
            self.steps.run(first, passes)
            return {"epochs": how.count("epochs"), **self.standing()}
        level = self._levels()
        taken, left = 0, self._above(level)
        while taken < passes and _count(left):
            some = min(EVERY, passes - taken)
            self.steps.activate(left)
            self.steps.run(first + taken, some)
            left, taken = self._above(level), taken + some
        return {"epochs": taken, "above": _count(left), **self.standing()}

    def standing(self) -> dict[str, list[float]]:
        """Of the forgotten triples, by table: what the paper reports, before anything is sent."""
        found = [
            np.concatenate(list(ranked(one, self.asked, self.lesson.site).values())) for one in self._every
        ]
        return {
            "hits@1": [float((ranks <= 1).mean()) for ranks in found],
            "mrr": [float((1 / ranks).mean()) for ranks in found],
        }

    @property
    def _every(self) -> list[Tables]:
        return [self.tables] if self.tables.second is None else [self.tables, self.tables.second]

    def _levels(self) -> list[dict[Side, Values]]:
        """Of each table, by its own held-out ranks."""
        site = self.lesson.site
        return [
            levels(
                ranked(table, self.asked, site),
                self.lesson.forgotten,
                ranked(table, self.asked_heldout, site),
                self.heldout,
                generator(self.seed, site, "levels"),
            )
            for table in self._every
        ]

    def _above(self, level: Sequence[Mapping[Side, Values]]) -> list[dict[Side, Mask]]:
        """Which triples rank better than their level, by table."""
        return [
            above(ranked(table, self.asked, self.lesson.site), own)
            for table, own in zip(self._every, level, strict=True)
        ]

    def decay(self, method: Method) -> dict[str, Any]:
        """Train on what is retained, the tables taking turns; no forgotten triple is drawn as a negative."""
        epochs = self.how.count("decay")
        if not epochs:
            return {"epochs": 0}
        lesson, device = self.lesson, self.tables.device
        corpus = Corpus.of({lesson.site: lesson.graph}, key(self.seed, "decay") >> 1, device)
        corpus = avoiding(corpus, {lesson.site: lesson.forgotten})
        told = method.dials()
        dials = {name: torch.ones(1, device=device) for name in (told.names if told else ())}
        objective = partial(method.objective, self.trainer, dials=dials)
        steps = Decay(
            self.trainer, self.tables, corpus, objective, self.how.confusion.relations, self.captured
        )
        steps.run(0, epochs)
        return {"epochs": epochs, **self.standing()}


def _alike(valid: Ids, forgotten: Ids) -> Ids:
    """Held-out triples of the forgotten ones' relations; of all relations where these have none."""
    chosen = valid[np.isin(valid[:, 1], forgotten[:, 1])]
    return chosen if len(chosen) else valid


def _count(above: Sequence[Mapping[Side, Mask]]) -> int:
    return sum(int(mask.sum()) for own in above for mask in own.values())
