"""Train experiments, each in its folder: what stands in the way of one is said before any of them trains."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedkge.errors import ConfigError, FedkgeError, visible
from fedkge.front.progress import progress

if TYPE_CHECKING:
    import torch

    from fedkge.runs.data import Sources
    from fedkge.runs.experiment import Experiment
    from fedkge.runtimes.run import Watch


@dataclass(frozen=True)
class Manner:
    """How a caller trains, whatever it trains."""

    device: str = "auto"
    resume: bool = True  #: go on with runs that are there; false: they are an error
    stacked: bool = True  #: sites train in one go
    notes: bool = True  #: say what is left to do
    around: Callable[[Path], AbstractContextManager[None]] = lambda folder: nullcontext()
    progress: Callable[[str], AbstractContextManager[Watch]] = field(default=progress)


def train(
    experiments: Mapping[Path, Experiment], out: Path, how: Manner, data: Mapping[Path, Sources] | None = None
) -> dict[Path, str]:
    """Train what is not done yet; why runs failed, by folder. One that fails does not stop the others."""
    from fedkge.runs.folder import RunFolder
    from fedkge.runtimes.run import Simulation, run

    on = device_named(how.device)
    begun = {folder: _begun(folder, out, one, how.resume) for folder, one in experiments.items()}
    data = load(experiments) if data is None else data
    _check_starts([folder for folder in experiments if not begun[folder]], experiments, data)
    done = {folder for folder in experiments if begun[folder] and (folder / "summary.json").exists()}
    for folder in done:
        RunFolder.open(folder).check_data(data[folder].named)
    if how.resume and how.notes:
        _say_what_is_left(out, len(experiments), len(done), sum(begun.values()))
    first, *others = experiments.values()
    alike = all(replace(one, seed=first.seed) == first for one in others)  # of many, reports say it
    if not done and alike:
        _say_what_is_exposed(first, data[next(iter(experiments))])
    _say_what_is_aligned([data[folder] for folder in experiments if folder not in done])
    failures: dict[Path, str] = {}
    for number, (folder, experiment) in enumerate(experiments.items(), 1):
        if folder in done:
            continue
        name = str(folder.relative_to(out)) if folder != out else out.name
        place = f"{name} ({number}/{len(experiments)})" if len(experiments) > 1 else name
        try:
            made = RunFolder.create(folder, experiment, begun[folder])
            with how.around(folder), how.progress(place) as watch:
                run(experiment, made, on, data[folder], watch, Simulation(stacked=how.stacked))
        except FedkgeError as error:
            if len(experiments) == 1:
                raise
            failures[folder] = str(error)
            print(f"error: {folder}: {error}", file=sys.stderr)
    return failures


def load(experiments: Mapping[Path, Experiment]) -> dict[Path, Sources]:
    """Each experiment's data; what is wrong with it is said before a folder is taken."""
    from fedkge.runs.data import Loader

    loader = Loader()
    return {folder: loader.load(experiment) for folder, experiment in experiments.items()}


def _begun(folder: Path, out: Path, experiment: Experiment, resume: bool) -> bool:
    """Whether the run is there, to be resumed; a run that is in the way is an error."""
    from fedkge.runs.folder import RunFolder

    for above in folder.parents:
        if not above.is_relative_to(out):
            break
        if (above / "config.toml").exists():
            raise ConfigError(f"{above}: holds a run already; choose another folder for several runs")
    begun = RunFolder.taken(folder, experiment, resume)
    below = next(folder.glob("*/config.toml"), None) if not begun else None
    if below is not None:
        raise ConfigError(f"{folder}: holds several runs, such as {below.parent.name}; choose another folder")
    return begun


def _check_starts(
    new: Sequence[Path], experiments: Mapping[Path, Experiment], data: Mapping[Path, Sources]
) -> None:
    """What is wrong with the runs that new ones go on from is said before any folder is taken.

    A run that is still to be trained, before the one that goes on from it, is looked at then.
    """
    from fedkge.runs.start import Start

    to_come = {folder.resolve() for folder in experiments}
    for folder in new:
        start, seed = experiments[folder].start, experiments[folder].seed
        if start is not None and to_come.isdisjoint({start.resolve(), start.resolve() / f"seed-{seed}"}):
            Start.open(experiments[folder], data[folder].named)


def _say_what_is_left(out: Path, runs: int, done: int, begun: int) -> None:
    if not begun:
        print(f"note: {out}: nothing to resume, {'a new run' if runs == 1 else 'new runs'}", file=sys.stderr)
    elif runs > 1:
        rest = f"{begun - done} to go on with, {runs - begun} new"
        print(f"note: {out}: {done} of {runs} runs are done, {rest}", file=sys.stderr)


def _say_what_is_aligned(sources: Sequence[Sources]) -> None:
    """A line for each way in which the data of these runs is aligned."""
    from fedkge.graphs.alignment import summary

    told = {id(one): summary(one.unified) for one in sources if len(one.named) > 1}
    for line in dict.fromkeys(told.values()):
        print(visible(line), file=sys.stderr)


def _say_what_is_exposed(experiment: Experiment, data: Sources) -> None:
    """Before anything is sent: how many rows another site will be able to compute.

    With a secret only the hub can count them, and says so.
    """
    from fedkge.graphs.exposure import exposures

    if not experiment.method.averages or experiment.align.secret is not None:
        return
    for found in exposures(data.announced(experiment), experiment.method.shares):
        if found.by_two:
            print(f"note: {found}", file=sys.stderr)


def device_named(name: str) -> torch.device:
    """The device that `--device` asks for."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device: expected auto, cpu or cuda, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: this machine has no CUDA device, or torch was built without CUDA")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
