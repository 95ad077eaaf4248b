"""A run, from an experiment to its folder: nodes that exchange messages, and a summary of what they wrote."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fedkge.errors import ConfigError, DataWarning, MissingPackage
from fedkge.graphs.graph import Federation
from fedkge.nodes.ledgers import RESULT, run_entries
from fedkge.nodes.result import read_result
from fedkge.privacy import costs
from fedkge.runs.account import sums
from fedkge.runs.data import Sources, load
from fedkge.runs.erased import under_way
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runs.summary import Result, environment, summarise
from fedkge.runtimes.loop import Carrier, Tap
from fedkge.runtimes.meeting import Meeting
from fedkge.runtimes.processes import Processes
from fedkge.runtimes.progress import Progress, Watch, ignored
from fedkge.runtimes.simulate import Simulated, Simulation

__all__ = ["Progress", "Simulated", "Simulation", "Watch", "run"]


def unprepared(nodes: Any) -> None:
    """Nodes begin as they are."""


def run(
    experiment: Experiment,
    folder: RunFolder,
    device: torch.device,
    data: Sources | Federation | None = None,
    watch: Watch = ignored,
    how: Simulation = Simulation(),  # noqa: B008 - frozen
    tap: Tap | None = None,
    prepare: Callable[[Any], None] = unprepared,
) -> dict[str, Any]:
    """Train the federation, keep each site's best validated tables, measure them on test; the summary.

    `data` are the experiment's graphs, where they are at hand; `prepare` may change nodes before they begin.
    """
    if prepare is unprepared and under_way(folder.path) not in (None, "exact"):
        raise ConfigError(
            f"{folder.path}: an unlearning that was interrupted; `fedkge unlearn --resume` goes on with it, "
            "which needs what is to be forgotten"
        )
    with folder.alone():
        started = time.perf_counter()
        begun = folder.journal.path.exists()
        with folder.unless_refused():
            sources = _sources(experiment, data)
            kind_ = experiment.method.kind
            folder.journal.write(
                "start", environment=environment(device), kind=kind_, sites=list(sources.named)
            )
            for report in sources.unified.reports:
                folder.journal.write("links", **asdict(report))
            found = {site: one.plain() for site, one in sources.leaks.items() if any(one.plain().values())}
            folder.journal.write("leaks", dropped=experiment.data.drop_leaks == "across", sites=found)
            kinds: dict[str, Any] = {"simulate": Simulated, "processes": Processes}
            kind = Meeting if experiment.method.hubless else kinds[experiment.runtime.name]
            nodes: Carrier | Meeting = kind(experiment, sources, folder, device, how, watch, tap)
            prepare(nodes)
        if begun:
            folder.journal.write("resumed", round=nodes.round)
        nodes.play()
        homes = _ended(experiment, {n: folder.home(n, member) for n, member in nodes.members.items()})
        record = nodes.record
        record.clock.lap()
        result = Result.collect(homes, record.courses, record.clock.seconds, record.tally)
        seconds = time.perf_counter() - started
        summary = summarise(experiment, sources, nodes.members, result, device, seconds)
        if nodes.start is not None:
            summary["start"] = nodes.start
        if experiment.method.hubless:
            summary["peers"] = {home.name: read_result(home)["peer"] for home in homes}
        if experiment.privacy.noisy:
            summary["privacy"], summary["accounts"] = _spent(experiment, folder)
        folder.write_summary(summary)
        folder.journal.write("end", metrics=summary["metrics"])
        return summary


def _ended(experiment: Experiment, homes: Mapping[str, Path]) -> list[Path]:
    """The folders of those who took part to the end: where sites may join later, some may never have."""
    ended = {name: home for name, home in homes.items() if (home / RESULT).is_file()}
    if not experiment.participation.open or not ended:
        return list(homes.values())
    for name in homes.keys() - ended.keys():
        warnings.warn(f"site {name!r} did not take part: it joined too late", DataWarning, stacklevel=2)
    return list(ended.values())


def _sources(experiment: Experiment, data: Sources | Federation | None) -> Sources:
    if isinstance(data, Sources):
        return data
    return load(experiment) if data is None else Sources.of(experiment, data)


def _spent(experiment: Experiment, folder: RunFolder) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What each site has spent in this run, and in all its runs."""
    privacy = experiment.privacy
    assert privacy.delta is not None, "with noise there is a delta"
    try:
        found = costs(run_entries(folder.path), privacy.delta, privacy.accountant)
    except MissingPackage as error:
        message = f"{error}; `fedkge privacy RUN` tells epsilon where it is installed"
        warnings.warn(message, DataWarning, stacklevel=2)
        return [], []
    return [cost.plain() for cost in found], sums(experiment)
