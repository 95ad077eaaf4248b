"""A warm start: sites begin with the tables that another run has kept, row by row by name."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedkge.config import options
from fedkge.errors import ConfigError, DataWarning, suggest
from fedkge.graphs.graph import Axis, Federation, Graph, Ids, Names
from fedkge.methods import METHODS, Member
from fedkge.models import MODELS, Model, Tables
from fedkge.nodes.journal import read_journal
from fedkge.nodes.learner import First
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder


@dataclass(frozen=True)
class Start:
    """A finished run, and for every site of the new one the tables that it kept and where names are in them.

    These are the tables that its test metrics are of.
    """

    path: Path  #: as given, or the folder of the same seed in it
    experiment: Experiment
    summary: Mapping[str, Any]
    tables: Mapping[str, Tables]
    places: Mapping[str, Mapping[Axis, Ids]]  # site -> axis -> the row of each name there; -1: it has none

    @classmethod
    def open(cls, experiment: Experiment, federation: Federation) -> Start:
        """What an experiment that has a start begins with, on these graphs under their own names."""
        assert experiment.start is not None
        folder = RunFolder(_run_at(experiment.start, experiment.seed))
        if not (folder.path / "summary.json").is_file():
            raise ConfigError(
                f"start: {folder.path}: the run has not ended, so that there is nothing to go on from; "
                "the command that began it ends it with --resume"
            )
        tables, places = {}, {}
        for site, graph in federation.items():
            tables[site], places[site] = _found(folder, site, graph, experiment.embedding)
        return cls(folder.path, folder.experiment(), folder.summary(), tables, places)

    def rows(self, member: Member, name: str) -> First:
        """What a site begins with; names that the run does not have keep their first rows."""
        if list(member.parts) != [name]:
            raise ConfigError(
                "start: the method trains one table for several sites, and runs keep a table for each; "
                "expected another method, or start unset"
            )
        return {
            axis: (
                torch.from_numpy(np.flatnonzero(at >= 0)),
                self.tables[name].table(axis)[torch.from_numpy(at[at >= 0])],
            )
            for axis, at in self.places[name].items()
        }

    @property
    def missing(self) -> dict[str, dict[str, int]]:
        """Site -> axis -> how many of its names the run does not have; only where some are missing."""
        counts = {
            site: {str(axis): int((at < 0).sum()) for axis, at in of.items()}
            for site, of in self.places.items()
        }
        return {site: of for site, of in counts.items() if any(of.values())}

    def warn(self, federation: Federation) -> None:
        """Say what makes it doubtful to go on from this run."""
        for site, of in self.missing.items():
            counts = " and ".join(f"{n:,} {axis} names" for axis, n in of.items() if n)
            _warn(f"{counts} of site {site!r} are not in {self.path}: they begin as usual, with random rows")
        known = self.summary["sites"]
        other = [site for site, graph in federation.items() if known[site]["digest"] != graph.digest()]
        if other:
            _warn(
                f"{self.path} had other triples, or others in train, at {', '.join(map(repr, other))}: if "
                "it was trained on what is now valid or test, these measure what was learnt by heart"
            )
        mode = self.experiment.privacy.mode
        if mode != "off":
            _warn(
                f"{self.path} was trained with privacy.mode {mode!r}, this run has none: its tables are "
                "protected by nothing, whatever that run has promised for its own"
            )

    def plain(self) -> dict[str, Any]:
        """For journal and summary: what was spent before this run, there and before that."""
        sent, before = self.summary["traffic"], self.summary.get("start")
        return {
            "run": str(self.path),
            "method": METHODS.name_of(self.experiment.method),
            "kind": self.experiment.method.kind,
            "rounds": self.summary["rounds"],
            "best_round": self.summary["best_round"],
            "epochs": self.experiment.trainer.epochs,
            "bytes": sent["up_bytes"] + sent["down_bytes"],
            "privacy": self.experiment.privacy.mode,
            "missing": self.missing,
        } | ({} if before is None else {"start": before})


def started(
    experiment: Experiment, federation: Federation, folder: RunFolder, resumed: bool
) -> tuple[Start | None, dict[str, Any] | None]:
    """What a run begins with, to be laid over its first rows, and what is told of it.

    A run that is resumed has its tables: what it started from need not be there any more.
    """
    if experiment.start is None:
        return None, None
    if resumed:
        events = [event for event in read_journal(folder.journal.path) if event.get("event") == "warm_start"]
        return None, {name: value for name, value in events[-1].items() if name not in ("event", "time")}
    start = Start.open(experiment, federation)
    start.warn(federation)
    folder.journal.write("warm_start", **start.plain())
    return start, start.plain()


def _warn(message: str) -> None:
    warnings.warn(f"start: {message}", DataWarning, stacklevel=4)


def _run_at(path: Path, seed: int) -> Path:
    """The run in this folder, or of several seeds the one of this."""
    for folder in (path, path / f"seed-{seed}"):
        if (folder / "config.toml").is_file():
            return folder
    raise ConfigError(
        f"start: {path}: not a run folder; expected one with config.toml, as `fedkge run` makes, or with a "
        f"run of this seed in seed-{seed}"
    )


def _found(folder: RunFolder, site: str, graph: Graph, model: Model) -> tuple[Tables, dict[Axis, Ids]]:
    """A site's tables in a run, and where the names of its graph are in them."""
    known = folder.sites()
    if site not in known:
        raise ConfigError(
            f"start: {folder.path}: no tables of site {site!r}{suggest(site, known)} (known: "
            f"{', '.join(known)}); every site needs some to begin with"
        )
    tables, entities, relations = folder.load_site(site)
    if tables.model != model:
        raise ConfigError(
            f"start: {folder.path}: tables of {_described(tables.model)}, while this run trains "
            f"{_described(model)}; expected the same model with the same options"
        )
    places = {
        Axis.ENTITY: _places(graph.entities, entities),
        Axis.RELATION: _places(graph.relations, relations),
    }
    if (places[Axis.ENTITY] < 0).all():
        raise ConfigError(
            f"start: {folder.path}: none of the {len(graph.entities):,} entities of site {site!r} is there "
            f"(it has {entities[0]!r}, here is {graph.entities[0]!r}); expected the same names"
        )
    return tables, places


def _places(names: Names, known: Names) -> Ids:
    """The row of each name in a table of the known ones; -1: it has none."""
    row = {name: i for i, name in enumerate(known)}
    return np.fromiter((row.get(name, -1) for name in names), np.int64, len(names))


def _described(model: Model) -> str:
    given = ", ".join(f"{name} = {value}" for name, value in options(model).items())
    return f"{MODELS.name_of(model)} ({given})"
