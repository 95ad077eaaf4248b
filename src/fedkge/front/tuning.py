"""Search for options by validation, with Optuna: trials are runs, hopeless ones are ended, all are kept."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkge.durable import keep_private, locked
from fedkge.errors import ConfigError, FedkgeError, MissingPackage
from fedkge.front.searching import Axis, points, suggested
from fedkge.front.training import Manner, device_named

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial

    from fedkge.runs.data import Loader
    from fedkge.runs.experiment import Experiment
    from fedkge.runtimes.progress import Progress, Watch

STORE = "search.db"
TRIALS = "trials"
FIRST = 5  #: trials that are never ended early
DRAWS = 32  #: points that the sampler may repeat before any untried one is taken


class Pruned(FedkgeError):  # noqa: N818 - reads as what it says
    """The search expects nothing of a trial any more."""


@dataclass(frozen=True)
class Search:
    """What is searched for, and where it is kept."""

    folder: Path
    axes: Sequence[Axis]
    make: Callable[[Mapping[str, str]], Experiment]  #: from a point, options as TOML
    trials: int
    prune: bool = True
    how: Manner = field(default_factory=Manner)

    @property
    def about(self) -> str:
        """What a search must have in common with the one that it goes on from."""
        axes = [vars(axis) for axis in self.axes]
        told = {"over": axes, "base": self.make({}).config(), "prune": self.prune}
        return json.dumps(told, sort_keys=True, default=str)


@dataclass(frozen=True)
class Tried:
    """A trial that is over."""

    number: int
    point: Mapping[str, Any]
    state: str  #: complete, pruned or failed
    valid_mrr: float | None  #: of a pruned one, the best so far
    folder: Path


def tune(search: Search) -> list[Tried]:
    """Run trials until there are as many as asked for; the same search goes on where it was interrupted."""
    optuna = _optuna()
    search.folder.mkdir(parents=True, exist_ok=True)
    with locked(search.folder / ".lock") as free:
        if not free:
            raise ConfigError(f"{search.folder}: another process is searching there; wait for it")
        keep_private(search.folder / STORE)
        storage = optuna.storages.RDBStorage(f"sqlite:///{(search.folder / STORE).resolve()}")
        try:
            return _searched(optuna, search, storage)
        finally:
            storage.engine.dispose()


def _searched(optuna: Any, search: Search, storage: Any) -> list[Tried]:
    pruner = (
        optuna.pruners.MedianPruner(n_startup_trials=FIRST) if search.prune else optuna.pruners.NopPruner()
    )
    study = optuna.create_study(
        storage=storage, study_name="search", direction="maximize", load_if_exists=True, pruner=pruner
    )
    about = study.user_attrs.get("about")
    if about is None:
        study.set_user_attr("about", search.about)
    elif about != search.about:
        raise ConfigError(
            f"{search.folder}: holds a search with other options; a search is resumed with the same ones, or "
            "more --trials"
        )
    from fedkge.runs.data import Loader

    loader = Loader()
    while (trial := _next(optuna, study, search)) is not None:
        _try(optuna, study, trial, search, loader)
    return tried(study, search)


def _next(optuna: Any, study: Study, search: Search) -> Trial | None:
    """The trial that was interrupted, or a new one; None when there are enough, or no point is left."""
    states = optuna.trial.TrialState
    interrupted = study.get_trials(deepcopy=False, states=(states.RUNNING,))
    if interrupted:
        return optuna.trial.Trial(study, interrupted[0]._trial_id)
    if not study.get_trials(deepcopy=False, states=(states.WAITING,)):  # drawn, then interrupted
        number = len(study.get_trials(deepcopy=False))
        if number >= search.trials:
            return None
        if number == points(search.axes, search.make({}).config()):
            print(f"note: {search.folder}: all {number} points were tried", file=sys.stderr)
            return None
        study.enqueue_trial(_drawn(optuna, study, search))
    return study.ask()


def _drawn(optuna: Any, study: Study, search: Search) -> dict[str, Any]:
    """A point that no trial has had.

    It is drawn on a copy of the study, where draws that repeat earlier points use up no trial. The sampler
    begins anew for each trial, so that an interrupted search makes the choices that an uninterrupted one
    would have made.
    """
    base, past = search.make({}), study.get_trials()
    before = [one.params for one in past]
    seed = (base.seed * 1_000_003 + len(past)) % 2**32
    copy = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=FIRST)
    )
    copy.add_trials(past)
    while True:
        one = copy.ask()
        suggested(search.axes, base.config(), one)
        if one.params not in before:
            return dict(one.params)
        copy.tell(one, state=optuna.trial.TrialState.FAIL)
        if len(copy.trials) == len(past) + DRAWS:
            copy.sampler = optuna.samplers.RandomSampler(seed=seed)


def _try(optuna: Any, study: Study, trial: Trial, search: Search, loader: Loader) -> None:
    """Run a trial, and tell the search what came of it."""
    states = optuna.trial.TrialState
    point = suggested(search.axes, search.make({}).config(), trial)
    try:
        experiment = search.make(point)
    except ConfigError as error:
        print(f"error: trial {trial.number}: {error}", file=sys.stderr)
        study.tell(trial, state=states.FAIL)
        return
    folder = search.folder / TRIALS / f"{trial.number:04d}"
    try:
        value = _value(experiment, folder, trial, search, loader)
    except Pruned:
        study.tell(trial, state=states.PRUNED)
    except FedkgeError as error:
        if _interrupted(error):
            raise
        print(f"error: trial {trial.number}: {error}", file=sys.stderr)
        study.tell(trial, state=states.FAIL)
    else:
        study.tell(trial, value)


def _interrupted(error: FedkgeError) -> bool:
    from fedkge.runtimes.loop import Interrupted

    return isinstance(error, Interrupted)


def _value(experiment: Experiment, folder: Path, trial: Trial, search: Search, loader: Loader) -> float:
    """The validation MRR of the tables that the run keeps."""
    from fedkge.reports.folders.load import load_run
    from fedkge.runs.folder import RunFolder
    from fedkge.runtimes.run import Simulation, run

    begun = RunFolder.taken(folder, experiment, resume=True)
    if not (begun and (folder / "summary.json").exists()):
        data = loader.load(experiment)
        made = RunFolder.create(folder, experiment, begun)
        name = f"trial {trial.number} of {search.trials}"
        with search.how.around(search.folder), search.how.progress(name) as shown:
            watch = _watching(experiment, trial, shown)
            run(
                experiment, made, device_named(search.how.device), data, watch, Simulation(search.how.stacked)
            )
    value = load_run(folder).metrics(load_run(folder).chosen_by).get("mrr")
    if value is None:
        raise FedkgeError(f"{folder}: nothing was validated; expected valid triples at some site")
    return value


def _watching(experiment: Experiment, trial: Trial, shown: Watch) -> Watch:
    """Tells the search each validation, and ends the run if that says so."""
    known = set(trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def watch(at: Progress) -> None:
        shown(at)
        validated = at.round % experiment.evaluate.every == 0 and at.mrr is not None and isfinite(at.mrr)
        if not validated or at.mrr is None or at.round in known:
            return
        trial.report(at.mrr, at.round)
        if at.round < at.rounds and trial.should_prune():
            raise Pruned(f"pruned after round {at.round}")

    return watch


def tried(study: Study, search: Search) -> list[Tried]:
    """All trials, in their order."""
    found = []
    for one in study.get_trials(deepcopy=False):
        value = one.value if one.value is not None else max(one.intermediate_values.values(), default=None)
        folder = search.folder / TRIALS / f"{one.number:04d}"
        state = {"FAIL": "failed"}.get(one.state.name, one.state.name.lower())
        found.append(Tried(one.number, dict(one.params), state, value, folder))
    return found


def best_of(trials: Sequence[Tried], folder: Path) -> Tried:
    """The trial with the best validation; the first of equals."""
    complete = [one for one in trials if one.state == "complete" and one.valid_mrr is not None]
    if not complete:
        raise FedkgeError(f"{folder}: no trial came to an end; see the errors above")
    return max(complete, key=lambda one: (one.valid_mrr or 0.0, -one.number))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingPackage("optuna", "a search for options", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
