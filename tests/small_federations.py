"""Federations of three small sites, and runs of them in one process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedkge.graphs.across import without_leaks
from fedkge.graphs.graph import Axis, Federation, Graph, Names
from fedkge.kernels import reference
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runs.summary import Result
from fedkge.runtimes.loop import Tap
from fedkge.runtimes.progress import Watch
from fedkge.runtimes.run import Progress, Simulated, Simulation
from fedkge.training import Moments

CONFIG: dict[str, Any] = {
    "rounds": 4,
    "data": {"name": "made up"},
    "model": {"name": "transe", "dim": 8},
    "trainer": {"epochs": 2, "batch_size": 16, "negatives": 4, "lr": 0.01},
    "evaluate": {"every": 2, "patience": 0},
}


def small_graph(seed: int, entities: list[str], relations: list[str], count: int, held_out: int = 6) -> Graph:
    """Random triples over the named things, split; things that no triple uses are left in."""
    random = np.random.default_rng(seed)
    n, m = len(entities), len(relations)
    triples = np.unique(random.integers(0, [n, m, n], (count, 3)), axis=0)
    triples = random.permutation(triples)
    parts = np.split(triples, [len(triples) - 2 * held_out, len(triples) - held_out])
    return Graph(Names(entities), Names(relations, Axis.RELATION), *parts)


def small_federation(relations_in_common: bool = False) -> dict[str, Graph]:
    """Sites of unlike sizes; e10..e19 are at all three, some at two, and some at one only."""
    spans = {"a": (0, 20), "b": (10, 40), "c": (10, 24)}
    sizes = {"a": 70, "b": 150, "c": 45}
    graphs = {}
    for number, (site, (start, end)) in enumerate(spans.items()):
        prefix = "" if relations_in_common else f"{site}."
        names = [f"e{i}" for i in range(start, end)]
        graphs[site] = small_graph(number, names, [f"{prefix}r{k}" for k in range(3)], sizes[site])
    return without_leaks(graphs, graphs)


def experiment(**changes: Any) -> Experiment:
    """The small experiment with some parts replaced; tables are merged key by key."""
    config = dict(CONFIG)
    for name, value in changes.items():
        old = config.get(name)
        config[name] = {**old, **value} if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return Experiment.parse(config)


def federated(
    path: Path,
    federation: Federation,
    how: Simulation = Simulation(),  # noqa: B008
    device: str | torch.device = "cpu",
    watch: Watch | None = None,
    tap: Tap | None = None,
    **changes: Any,
) -> Simulated:
    """A federation in a new folder, or in one that an interrupted run of it left."""
    one = experiment(**changes)
    folder = RunFolder.create(path, one, resume=(path / "config.toml").exists())
    sources = Sources.of(one, federation)
    return Simulated(one, sources, folder, torch.device(device), how, watch or ignore, tap)


def played(path: Path, federation: Federation, **options: Any) -> Simulated:
    run = federated(path, federation, **options)
    run.play()
    return run


class Once:
    """Federations played to their end, each once: for tests that only look at them.

    The trainer has the given options, unless a test has others.
    """

    def __init__(self, folder: Path, **trainer: Any) -> None:
        self.folder, self.trainer = folder, trainer
        self.known: dict[str, Simulated] = {}

    def __call__(self, federation: Federation, **options: Any) -> Simulated:
        options["trainer"] = {**self.trainer, **options.get("trainer", {})}
        key = repr(([graph.digest() for graph in federation.values()], options))
        if key not in self.known:
            self.known[key] = played(self.folder / str(len(self.known)), federation, **options)
        return self.known[key]


def result(run: Simulated) -> Result:
    """What a run that has ended came to, as its nodes have written it down."""
    homes = [run.folder.home(name, member) for name, member in run.members.items()]
    return Result.collect(homes, run.record.courses, run.clock.seconds, run.record.tally)


def ignore(progress: Progress) -> None:
    pass


def rows(run: Simulated) -> dict[str, Tensor]:
    """Every site's tables and what it kept, by name."""
    found = {}
    for name, stack in run.stack_of.items():
        for kind, tables in (("now", stack.sites[name].tables), ("best", stack.bests[name])):
            for axis in Axis:
                found[f"{kind} {name} {axis}"] = tables.table(axis).clone()
    return found


def assert_same(first: Simulated, second: Simulated) -> None:
    a, b = rows(first), rows(second)
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def differ(first: Simulated, second: Simulated) -> bool:
    a, b = rows(first), rows(second)
    return any(not torch.equal(a[name], b[name]) for name in a)


def moments(rows: Tensor, kept: Tensor) -> Moments:
    """What penalties are computed from, differentiable in the rows."""
    return Moments(*reference.moments(rows, kept).unbind(-1))
