"""A run in one process, from an experiment to its folder."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import torch

from fedkge.graphs.graph import Federation
from fedkge.runtimes.experiment import Experiment, check_federation
from fedkge.runtimes.federated import Federated, Simulation
from fedkge.runtimes.folder import RunFolder
from fedkge.runtimes.record import Progress, Watch
from fedkge.runtimes.summary import environment, summarise

__all__ = ["Federated", "Progress", "Simulation", "Watch", "run"]


def run(
    experiment: Experiment,
    folder: RunFolder,
    device: torch.device,
    federation: Federation | None = None,
    watch: Watch = lambda progress: None,
    how: Simulation = Simulation(),  # noqa: B008 - frozen
) -> dict[str, Any]:
    """Train the federation, keep each site's best validated tables, measure them on test; the summary."""
    with folder.alone():
        return _run(experiment, folder, device, federation, watch, how)


def _run(
    experiment: Experiment,
    folder: RunFolder,
    device: torch.device,
    federation: Federation | None,
    watch: Watch,
    how: Simulation,
) -> dict[str, Any]:
    started = time.perf_counter()
    begun = folder.journal.path.exists()
    with folder.unless_refused():
        federation = experiment.load() if federation is None else experiment.numbered(federation)
        check_federation(federation)
        unified = experiment.align.apply(federation)
        folder.journal.write("start", environment=environment(device), sites=list(federation))
        for report in unified.reports:
            folder.journal.write("links", **asdict(report))
        federated = Federated(experiment, unified.federation, folder, device, how, federation)
    if begun:
        folder.journal.write("resumed", round=federated.hub.round)
    federated.play(watch)
    result = federated.result()
    for name, stack in federated.stack_of.items():
        kept = {"": stack.bests[name], **federated.sites[name].views()}
        for site, part in stack.members[name].views.items():
            for view, tables in kept.items():
                folder.save_site(site, part.of(tables), federation[site], view)
            folder.save_ranks(site, result.ranks[site])
    summary = summarise(experiment, federation, unified, result, device, time.perf_counter() - started)
    if federated.start is not None:
        summary["start"] = federated.start
    if federated.protected is not None:
        summary |= federated.protected.plain()
    folder.write_summary(summary)
    folder.journal.write("end", metrics=summary["metrics"])
    return summary
