"""Unlearning at a site (FedLU, Zhu et al., WWW 2023, 4.2): interference, then decay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from math import inf
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from fedkge.errors import ConfigError
from fedkge.evaluation import Asked, Known
from fedkge.graphs.graph import Axis, Graph, Ids, Mask
from fedkge.methods.base import Method
from fedkge.models import Side, Tables
from fedkge.randomness import generator, key
from fedkge.training import Corpus, Trainer
from fedkge.training.decay import Decay
from fedkge.training.interference import Confusion, Interference, avoiding
from fedkge.training.levels import Values, above, levels, ranked

Above: TypeAlias = Mapping[Side, Mask]  #: which triples rank better than their level
BySite: TypeAlias = Mapping[str, Sequence[Mapping[Side, Values]]]  #: ranks, or levels, by site and table
FEW = 0.01  #: part of a site's questions that may stay above the level
SMALL = 0.002  #: part of the triples of the sites that forget; a request for less is followed by fewer rounds
EVERY = 2  #: epochs between two looks at who has reached the level


@dataclass(frozen=True)
class Unlearn:
    """How triples are unlearned."""

    mode: Literal["target", "paper", "exact"] = "target"  #: paper: in full; exact: trained again without them
    epochs: int | None = None  #: epochs of interference; unset: 10 (paper), at most 20 (target); 0: none
    decay: int | None = (
        None  #: epochs of decay; unset: 10 in mode paper; in mode target the rounds that follow are it
    )
    rounds: int | None = (
        None  #: that follow, with all sites; unset: 2 in mode paper; in mode target 4, or 2 for few triples
    )
    training: int | None = None  #: epochs of training in each of these rounds; unset: the run's
    passed: float | None = (
        None  #: part of what a site moves that others' tables which never travel follow; unset: the method's
    )
    lr: float | None = None  #: learning rate of decay and of the rounds that follow; unset: the run's
    confusion: Confusion = field(default_factory=Confusion)

    def __post_init__(self) -> None:
        for name in ("epochs", "decay", "rounds", "training"):
            value, least = getattr(self, name), int(name in ("rounds", "training"))
            if value is not None and value < least:
                raise ConfigError(f"{name}: expected at least {least}, got {value}")
        if self.passed is not None and not 0 <= self.passed <= 1:
            raise ConfigError(f"passed: expected 0 to 1, got {self.passed}")
        if self.lr is not None and not 0 < self.lr < inf:
            raise ConfigError(f"lr: expected a number above 0, got {self.lr}")

    @property
    def batches(self) -> int:
        """Triples of a step: in mode target who has reached the level is looked up after every pass."""
        given = self.confusion.batch_size
        return given if given is not None else 16 if self.mode == "paper" else 256

    def sized(self, share: float) -> Unlearn:
        """For a request for this part of the triples of the sites that forget."""
        if self.mode != "target" or self.rounds is not None or share > SMALL:
            return self
        return replace(self, rounds=2)

    def count(self, name: Literal["epochs", "decay", "rounds"]) -> int:
        """An option that has another default in each mode."""
        given: int | None = getattr(self, name)
        paper = {"epochs": 10, "decay": 10, "rounds": 2}
        target = {"epochs": 20, "decay": 0, "rounds": 4}
        return given if given is not None else (paper if self.mode == "paper" else target)[name]


@dataclass(frozen=True, eq=False)
class Lesson:
    """What one site has to forget."""

    site: str
    graph: Graph  #: the retained triples, in ids in which the forgotten ones can be told
    forgotten: Ids  # [m, 3]: training triples


class Forgetting:
    """Lessons of some sites at work on their tables, all in one go: rows change, nothing is remembered."""

    def __init__(
        self,
        how: Unlearn,
        trainer: Trainer,
        lessons: Sequence[Lesson],
        tables: Mapping[str, Tables],
        seed: int,
        captured: bool = True,
    ) -> None:
        """`tables` are by site; those that are worked on later have the same numbers of rows."""
        self.how, self.seed, self.captured = how, seed, captured
        self.trainer = trainer
        self.lessons = {lesson.site: lesson for lesson in lessons}
        self.laid = _laid([tables[site] for site in self.lessons])
        self.parts = dict(
            zip(self.lessons, _parts(self.laid, [tables[site] for site in self.lessons]), strict=True)
        )
        self.heldout = {site: _alike(one.graph.valid, one.forgotten) for site, one in self.lessons.items()}
        self.asked: dict[str, tuple[Asked, Asked]] = {}  # about forgotten and held-out triples
        for site, lesson in self.lessons.items():
            known, device = Known.from_graph(lesson.graph), self.laid.device
            triples = lesson.forgotten, self.heldout[site]
            self.asked[site] = Asked.of(triples[0], known, device), Asked.of(triples[1], known, device)
        graphs = {site: lesson.graph for site, lesson in self.lessons.items()}
        forgotten = {site: lesson.forgotten for site, lesson in self.lessons.items()}
        confusion = how.confusion, how.batches, self.trainer
        self.steps = Interference(*confusion, self.laid, graphs, forgotten, seed, captured)

    def interfere(self, turn: int, tables: Mapping[str, Tables]) -> dict[str, dict[str, Any]]:
        """Push forgotten triples down; in mode target only those that rank better than their level.

        `turn` numbers the calls: each draws its own negatives.
        """
        how = self.how
        passes = how.count("epochs") * how.confusion.passes
        first = turn * passes
        if not passes:
            return {site: {"epochs": 0} for site in self.lessons}
        self.steps.restart()
        with self._working_on(tables):
            if how.mode == "paper":
                self.steps.run(first, passes)
                return {site: {"epochs": how.count("epochs"), **of} for site, of in self.standing().items()}
            ranks = self._ranked()
            level = self._levels(ranks)
            taken, left = 0, _above(ranks, level)
            while taken < passes and not all(map(_enough, left.values())):
                some = min(EVERY, passes - taken)
                self.steps.activate(_joined(list(left.values())))
                self.steps.run(first + taken, some)
                ranks = self._ranked()
                left, taken = _above(ranks, level), taken + some
            return {
                site: {"epochs": taken, "above": _count(left[site]), **of}
                for site, of in self.standing(ranks).items()
            }

    @contextmanager
    def _working_on(self, tables: Mapping[str, Tables]) -> Iterator[None]:
        """Take rows in, and give them back changed."""
        for site, part in self.parts.items():
            part.copy_(tables[site])
        yield
        for site, part in self.parts.items():
            tables[site].copy_(part)

    def standing(self, ranks: BySite | None = None) -> dict[str, dict[str, list[float]]]:
        """Of forgotten triples, by site and table: what the paper reports, before anything is sent."""
        return {
            site: {
                "hits@1": [float((own <= 1).mean()) for own in found],
                "mrr": [float((1 / own).mean()) for own in found],
            }
            for site, of in (ranks or self._ranked()).items()
            if (found := [np.concatenate(list(one.values())) for one in of])
        }

    def _ranked(self, which: Literal["forgotten", "held-out"] = "forgotten") -> BySite:
        """Ranks by site and table; the device works on all of them before anything is waited for."""
        place = ("forgotten", "held-out").index(which)
        counted = {
            site: [asked[place].count(table, site=site) for table in self._every(site)]
            for site, asked in self.asked.items()
        }
        return {site: [ranked(one) for one in of] for site, of in counted.items()}

    def _every(self, site: str) -> list[Tables]:
        part = self.parts[site]
        return [part] if part.second is None else [part, part.second]

    def _levels(self, ranks: BySite) -> BySite:
        """Of each table, by its own held-out ranks."""
        held = self._ranked("held-out")
        return {
            site: [
                levels(
                    own,
                    self.lessons[site].forgotten,
                    alike,
                    self.heldout[site],
                    generator(self.seed, site, "levels"),
                )
                for own, alike in zip(of, held[site], strict=True)
            ]
            for site, of in ranks.items()
        }

    def decay(self, method: Method, tables: Mapping[str, Tables]) -> dict[str, dict[str, Any]]:
        """Train on what is retained, the tables taking turns; no forgotten triple is drawn as a negative."""
        epochs = self.how.count("decay")
        if not epochs:
            return {site: {"epochs": 0} for site in self.lessons}
        device = self.laid.device
        graphs = {site: lesson.graph for site, lesson in self.lessons.items()}
        corpus = Corpus.of(graphs, key(self.seed, "decay") >> 1, device)
        corpus = avoiding(corpus, {site: lesson.forgotten for site, lesson in self.lessons.items()})
        trainer = replace(self.trainer, lr=self.how.lr or self.trainer.lr)
        told = method.dials()
        dials = {name: torch.ones(len(graphs), device=device) for name in (told.names if told else ())}
        objective = partial(method.objective, trainer, dials=dials)
        relations = self.how.confusion.relations
        with self._working_on(tables):
            Decay(trainer, self.laid, corpus, objective, relations, self.captured).run(0, epochs)
            return {site: {"epochs": epochs, **of} for site, of in self.standing().items()}


def _laid(every: Sequence[Tables]) -> Tables:
    """Tables of one model, one after another."""
    first = every[0]
    laid = Tables(
        first.model, torch.cat([one.entities for one in every]), torch.cat([one.relations for one in every])
    )
    if first.second is not None:
        laid.second = _laid([one.second for one in every if one.second is not None])
        if first.second.relations is first.relations:
            laid.second.relations = laid.relations
    return laid


def _parts(laid: Tables, every: Sequence[Tables]) -> list[Tables]:
    """Views of tables that are laid one after another."""
    ends = [[0, *accumulate(len(one.table(axis)) for one in every)] for axis in Axis]
    return [laid.part(slice(*e), slice(*r)) for e, r in zip(*map(pairwise, ends), strict=True)]


def _alike(valid: Ids, forgotten: Ids) -> Ids:
    """Held-out triples of the forgotten ones' relations; of all relations where these have none."""
    chosen = valid[np.isin(valid[:, 1], forgotten[:, 1])]
    return chosen if len(chosen) else valid


def _above(ranks: BySite, level: BySite) -> dict[str, list[Above]]:
    """Which triples rank better than their level, by site and table."""
    return {
        site: [above(own, least) for own, least in zip(of, level[site], strict=True)]
        for site, of in ranks.items()
    }


def _joined(left: Sequence[Sequence[Above]]) -> list[Above]:
    """Masks of several sites, by table."""
    return [
        {side: np.concatenate([of[side] for of in own]) for side in Side} for own in zip(*left, strict=True)
    ]


def _enough(above: Sequence[Above]) -> bool:
    """Whether so few triples of a site are better than their level that it is left at that."""
    return _count(above) <= FEW * sum(len(mask) for own in above for mask in own.values())


def _count(above: Sequence[Above]) -> int:
    return sum(int(mask.sum()) for own in above for mask in own.values())
