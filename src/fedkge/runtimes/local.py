"""Run an experiment in this process: train, validate, stop, keep the best, resume where it was left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.evaluation import Known, combined, metrics, rank
from fedkge.evaluation.checks import diverged
from fedkge.exports.files import check_names
from fedkge.graphs.graph import Federation, Graph, Ids, Split
from fedkge.graphs.pool import pool
from fedkge.models import Side, Tables
from fedkge.randomness import name_keys
from fedkge.runtimes.experiment import Experiment
from fedkge.runtimes.folder import RunFolder
from fedkge.runtimes.summary import Result, SiteMetrics, environment, summarise
from fedkge.training import Corpus, Stopping, Training

Watch: TypeAlias = Callable[["Progress"], None]  #: told after every round


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is."""

    course: str
    round: int
    rounds: int
    loss: float
    mrr: float | None  #: the last validation's
    triples_per_s: float


@dataclass(frozen=True, slots=True)
class Course:
    """A graph to train on, and the sites whose statements its tables are measured by."""

    name: str
    graph: Graph
    sites: Federation
    entities: Mapping[str, Ids]  # site -> row of each of its entities
    relations: Mapping[str, Ids]

    def view(self, tables: Tables, site: str) -> Tables:
        """A site's own rows, in its own order."""
        rows = (torch.from_numpy(ids[site]).to(tables.device) for ids in (self.entities, self.relations))
        e, r = rows
        return Tables(tables.model, tables.entities[e], tables.relations[r])


def courses(method: str, federation: Federation) -> list[Course]:
    """`single`: every site for itself. `collective`: one pooled graph, measured per site."""
    if method == "collective":
        pooled = pool(federation)
        return [Course("collective", pooled.graph, federation, pooled.entities, pooled.relations)]
    return [
        Course(
            site,
            graph,
            {site: graph},
            {site: np.arange(graph.n_entities)},
            {site: np.arange(graph.n_relations)},
        )
        for site, graph in federation.items()
    ]


@dataclass
class Clock:
    """Seconds spent per kind of work; survives a resume."""

    seconds: dict[str, float] = field(default_factory=lambda: {"train": 0.0, "evaluate": 0.0})

    def spend(self, kind: str, since: float) -> float:
        spent = time.perf_counter() - since
        self.seconds[kind] += spent
        return spent


class CourseRun:
    """One course's training, from its last checkpoint on."""

    def __init__(
        self, experiment: Experiment, course: Course, folder: RunFolder, device: torch.device
    ) -> None:
        self.experiment, self.course, self.folder, self.device = experiment, course, folder, device
        graph = course.graph
        keys = [
            torch.from_numpy(name_keys(names).view(np.int64)) for names in (graph.entities, graph.relations)
        ]
        self.tables = Tables.create(experiment.model, keys[0], keys[1], experiment.seed, device)
        experiment.model.observe(self.tables.relations, torch.from_numpy(graph.train).to(device))
        corpus = Corpus.of({course.name: graph}, experiment.seed, device)
        self.training = Training(experiment.trainer, self.tables, corpus)
        self.best = self.tables.to(device)
        self.known = {site: Known.from_graph(own) for site, own in course.sites.items()}
        self.stopping = Stopping(experiment.evaluate.patience, experiment.evaluate.rule)
        self.clock, self.round, self.data = Clock(), 0, graph.digest()
        self._resume()

    def _resume(self) -> None:
        saved = self.folder.load_checkpoint(self.course.name)
        if saved is None:
            return
        tensors, state = saved
        own = self._tensors()
        if state["data"] != self.data:
            raise DataError(f"{self.folder.path}: the data of {self.course.name!r} has changed since the run")
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
        self.round = state["round"]
        self.stopping = Stopping(**state["stopping"])
        self.clock = Clock(state["seconds"])
        self.folder.journal.write("resumed", course=self.course.name, round=self.round)

    def _tensors(self) -> dict[str, Tensor]:
        tables = {"": self.tables, "best.": self.best}
        rows = {
            f"{prefix}{axis}": getattr(of, axis)
            for prefix, of in tables.items()
            for axis in ("entities", "relations")
        }
        return {**rows, **self.training.state()}

    def train(self, watch: Watch) -> None:
        """Rounds until validation says stop, or the budget is spent."""
        experiment, epochs = self.experiment, self.experiment.trainer.epochs
        visits = len(self.course.graph.train) * len(experiment.trainer.turns) * epochs
        while self.round < experiment.rounds and not self.stopping.done:
            started = time.perf_counter()
            loss = float(self.training.run(self.round * epochs)[0])
            if not isfinite(loss):
                raise diverged(self.course.name)
            seconds = self.clock.spend("train", started)
            self.round += 1
            sites = {site: {"loss": loss} for site in self.course.sites}
            self.folder.journal.write(
                "round",
                course=self.course.name,
                round=self.round,
                seconds=seconds,
                triples=visits,
                sites=sites,
            )
            if self.round % experiment.evaluate.every == 0 or self.round == experiment.rounds:
                self._validate()
            mrr = self.stopping.last if self.stopping.best_at > 0 else None
            watch(Progress(self.course.name, self.round, experiment.rounds, loss, mrr, visits / seconds))

    def _validate(self) -> None:
        sites = {site: found["both"] for site, found in self.measure(self.tables, Split.VALID).items()}
        mrr = combined(sites.values())["mrr"]
        if self.stopping.check(self.round, mrr):
            self.best.entities.copy_(self.tables.entities)
            self.best.relations.copy_(self.tables.relations)
        self.folder.journal.write(
            "evaluate", course=self.course.name, round=self.round, split="valid", sites=sites, mrr=mrr
        )
        state = {
            "round": self.round,
            "stopping": asdict(self.stopping),
            "seconds": self.clock.seconds,
            "data": self.data,
        }
        self.folder.save_checkpoint(self.course.name, self._tensors(), state)

    def measure(self, tables: Tables, split: Split) -> SiteMetrics:
        """Each site's metrics by side: head, tail, both."""
        started = time.perf_counter()
        found = {}
        for site, own in self.course.sites.items():
            ranks = rank(self.course.view(tables, site), own.split(split), self.known[site], site=site)
            found[site] = {"both": metrics(ranks)} | {str(side): metrics(ranks, side=side) for side in Side}
        self.clock.spend("evaluate", started)
        return found


def run(
    experiment: Experiment,
    folder: RunFolder,
    device: torch.device,
    federation: Federation | None = None,
    watch: Watch = lambda progress: None,
) -> dict[str, Any]:
    """Train every course, keep each one's best validated tables, measure them on test; the summary."""
    started = time.perf_counter()
    federation = experiment.load() if federation is None else federation
    for graph in federation.values():  # said before hours of training
        check_names(graph.entities)
        check_names(graph.relations)
    folder.journal.write("start", environment=environment(device), sites=list(federation))
    results = {}
    for course in courses(experiment.method.name, federation):
        one = CourseRun(experiment, course, folder, device)
        one.train(watch)
        results[course.name] = Result(
            rounds=one.round,
            best_round=one.stopping.best_at,
            seconds=one.clock.seconds,
            valid=one.measure(one.best, Split.VALID),
            test=one.measure(one.best, Split.TEST),
        )
        for site in course.sites:
            folder.save_site(site, course.view(one.best, site), federation[site])
    summary = summarise(experiment, federation, results, device, time.perf_counter() - started)
    folder.write_summary(summary)
    folder.journal.write("end", metrics=summary["metrics"])
    return summary
