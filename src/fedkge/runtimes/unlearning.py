"""Unlearning as a run: sites begin with an old run's tables, forget, and go on with what is retained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree
from time import perf_counter
from typing import Any

import numpy as np
import torch

from fedkge.config import to_toml
from fedkge.durable import PRIVATE
from fedkge.errors import ConfigError, DataError, FedkgeError
from fedkge.graphs.graph import Axis, Federation, Graph
from fedkge.graphs.marks import read_names
from fedkge.graphs.prefixes import full_names
from fedkge.graphs.subgraph import renumbered
from fedkge.graphs.writing import write_federation
from fedkge.methods.unlearn import Unlearn
from fedkge.nodes.ledgers import LEDGER, homes
from fedkge.nodes.store import write_whole
from fedkge.privacy.seal import Head
from fedkge.runs.account import accounts_folder
from fedkge.runs.data import Sources, load
from fedkge.runs.erased import REPORT, begin, report
from fedkge.runs.experiment import (
    Account,
    Data,
    Evaluate,
    Experiment,
    Marks,
    Participation,
    Persons,
    Runtime,
)
from fedkge.runs.folder import LOCK, RunFolder
from fedkge.runs.holdings import Holdings
from fedkge.runs.requests import Erasure
from fedkge.runtimes.forgetting import Work, noted
from fedkge.runtimes.progress import Watch, ignored
from fedkge.runtimes.run import run
from fedkge.runtimes.simulate import Simulation

DATA = "data"  #: the retained graphs, in the same folder
PERSONS, WITHHELD = "persons.txt", "withheld.txt"  #: names, beside the retained graphs


@dataclass(frozen=True, eq=False)
class Unlearned:
    """What unlearning came to, for whoever reports and audits it."""

    folder: RunFolder
    old: Holdings
    erasure: Erasure
    how: Unlearn
    seconds: float
    sites: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  #: what each site that forgets noted


def unlearn(
    old: Holdings,
    out: Path,
    erasure: Erasure,
    how: Unlearn = Unlearn(),  # noqa: B008 - frozen
    device: torch.device | str = "cpu",
    write_data: Path | None = None,
    resume: bool = False,
    watch: Watch = ignored,
    simulation: Simulation = Simulation(),  # noqa: B008 - frozen
) -> Unlearned:
    """A new run folder without what is to be forgotten; the old one stays as it is."""
    began = perf_counter()
    if erasure.empty:
        return Unlearned(_copied(old, out, write_data), old, erasure, how, perf_counter() - began)
    how = how if erasure.withdrawn else how.sized(erasure.share)
    at = (write_data or out / DATA).absolute()  # the run can be read from any folder
    experiment = planned(old, erasure, how, at)
    if not RunFolder.taken(out, experiment, resume) and resume:
        raise ConfigError(f"{out}: no unlearning to resume")
    folder = RunFolder.create(out, experiment, resume)
    with _unless_refused(folder, experiment):
        with folder.unless_refused():
            data = write_retained(old, erasure, experiment, resume)
            if report(out) is None:
                begin(out, old.folder.path, original(old).config(), how.mode)
        if resume and (out / "summary.json").is_file():
            pass  # all but its report is there
        elif how.mode == "exact":
            _carry_ledgers(old.folder, folder, erasure)
            run(experiment, folder, torch.device(device), data, watch, simulation)
        else:
            with folder.unless_refused():
                work = Work(old, erasure, how, original(old).trainer, data)
            run(experiment, folder, torch.device(device), data, watch, simulation, prepare=work.prepare)
    said = {} if how.mode == "exact" else noted(folder, erasure.chosen)
    return Unlearned(folder, old, erasure, how, perf_counter() - began, said)


@contextmanager
def _unless_refused(folder: RunFolder, experiment: Experiment) -> Iterator[None]:
    """A new run that is refused leaves no data behind either; data that was there before stays."""
    data, persons, withheld = experiment.data.path, experiment.persons.names, experiment.align.withhold
    assert data is not None, "planned with a path"
    there = data.exists()
    try:
        yield
    except FedkgeError:
        if folder.made and not there and not (folder.path / "config.toml").exists():
            rmtree(data, ignore_errors=True)
            for file in (persons, withheld, folder.path / REPORT):
                if file is not None:
                    file.unlink(missing_ok=True)
            for made in folder.made:
                with suppress(OSError):  # something else is in it
                    made.rmdir()
        raise


def original(old: Holdings) -> Experiment:
    """What the tables were first trained by, however often something was unlearned since."""
    found = report(old.folder.path)
    return old.experiment if found is None else Experiment.parse(found["experiment"])


def planned(old: Holdings, erasure: Erasure, how: Unlearn, data: Path) -> Experiment:
    """The experiment of the new run; an error where unlearning is not possible."""
    base, now, retained = original(old), old.experiment, erasure.retained
    persons, withheld = _persons(retained), _withheld(now, retained)
    base = replace(
        base,
        data=_written(base, data),
        persons=Persons(names=_beside(data, PERSONS) if persons else None, mentions=base.persons.mentions),
        marks=Marks(),  # the files that it names may name what is forgotten; written data has its marks
        account=_spent(now),
        accept={site: of for site, of in base.accept.items() if site in retained},
        align=replace(base.align, withhold=_beside(data, WITHHELD) if withheld else None),
    )
    if old.sources.said:
        raise ConfigError(
            "data: the graphs have links in them (owl:sameAs), which the graphs that are left would lack; "
            "expected a run whose links are in a file (align.entities)"
        )
    apart = now.method.members(erasure.before).keys() == erasure.before.keys()
    if apart:
        for site in erasure.before.keys() - set(old.folder.sites()):
            old.folder.load_site(site)  # says that there are none
    if how.mode == "exact":
        if base.start is not None:
            raise ConfigError(
                f"start: the run began with the tables of {base.start}, which may have been trained on what "
                "is to be forgotten; unlearn there first, or train from the start"
            )
        return base
    if base.privacy.noisy:
        raise ConfigError(
            f"privacy.mode: {base.privacy.mode!r}: interference looks at confidential triples without noise, "
            "which no ledger accounts for; expected mode exact, which trains again and adds to what was spent"
        )
    if now.method.hubless:
        raise ConfigError(
            "the method has no hub, and peers pass on what was forgotten only when they talk again; expected "
            "mode exact, or a run of another method"
        )
    if not apart:
        raise ConfigError(
            "the method trains one table for several sites, in which a site's part cannot be told; expected "
            "mode exact, or a run of another method"
        )
    return replace(
        base, start=None, participation=Participation(), runtime=Runtime(), **_following(base, erasure, how)
    )


def _written(base: Experiment, data: Path) -> Data:
    """Graphs that were written as they were read; leaks between sites are left out when sites train."""
    return Data(path=data, drop_leaks="across" if base.data.drop_leaks == "across" else False)


def _spent(old: Experiment) -> Account:
    """What was spent stays spent, wherever the new run's data is."""
    return Account(accounts_folder(old).absolute())


def _following(base: Experiment, erasure: Erasure, how: Unlearn) -> dict[str, Any]:
    """How the sites go on: a few rounds, validated at the end; once a site has left, as they began.

    Rows that a site which leaves had a part in begin anew, and take as long as validation says.
    """
    trainer = replace(base.trainer, lr=how.lr or base.trainer.lr)
    if erasure.withdrawn and how.rounds is None:
        return {"trainer": trainer}
    rounds = how.count("rounds")
    trainer = replace(trainer, epochs=how.training or trainer.epochs)
    evaluate = Evaluate(every=rounds, patience=0, sides=base.evaluate.sides)
    return {"trainer": trainer, "rounds": rounds, "evaluate": evaluate}


def write_retained(old: Holdings, erasure: Erasure, experiment: Experiment, resume: bool) -> Sources:
    """The graphs that are left, and names of persons, where the new run has them.

    With `resume` graphs that are there already stay; they must be those that this request leaves.
    """
    retained, at = erasure.retained, experiment.data.path
    assert at is not None, "planned with a path"
    _write_names(experiment.persons.names, _persons(retained))
    _write_names(experiment.align.withhold, _withheld(old.experiment, retained))
    if not (resume and at.is_dir()):
        write_federation(retained, at)
        for file in (path for path in at.rglob("*") if path.is_file()):
            file.chmod(PRIVATE)
    data = load(experiment)
    check_left(at, data, retained)
    return data


def check_left(at: Path, data: Sources, retained: Federation) -> None:
    """An error unless these graphs, of a folder that was begun before, are what a request leaves."""
    if data.named.keys() != retained.keys() or not all(_same(data.named[s], retained[s]) for s in retained):
        raise DataError(
            f"{at}: not what this request leaves; resume with the request that the folder was begun with, or "
            "choose another folder"
        )


def _same(one: Graph, other: Graph) -> bool:
    """Whether two graphs have the same triples in the same order, whatever their ids."""
    if set(one.entities) != set(other.entities) or set(one.relations) != set(other.relations):
        return False
    entity, relation = other.entities.ids(one.entities), other.relations.ids(one.relations)
    return all(
        np.array_equal(renumbered(mine, entity, relation), theirs)
        for mine, theirs in zip(one.splits().values(), other.splits().values(), strict=True)
    )


def _write_names(at: Path | None, names: Sequence[str]) -> None:
    if at is not None:
        write_whole(at, "\n".join(names).encode())


def _beside(data: Path, name: str) -> Path:
    return data.with_name(f"{data.name}-{name}")


def _withheld(old: Experiment, retained: Federation) -> list[str]:
    """Of the entities that no site announces, those that are still there."""
    if old.align.withhold is None:
        return []
    there = {name for graph in retained.values() for name in graph.entities}
    listed = full_names(retained, Axis.ENTITY, read_names(old.align.withhold))
    return [name for name in listed if name in there]


def _persons(retained: Federation) -> list[str]:
    """The persons that are still there."""
    there = {
        graph.entities[i]
        for graph in retained.values()
        if graph.persons is not None
        for i in np.flatnonzero(graph.persons).tolist()
    }
    return sorted(there)


def _carry_ledgers(old: RunFolder, new: RunFolder, erasure: Erasure) -> None:
    """What was spent on triples that stay was spent: it counts in the new run too."""
    for before in homes(old.path):
        spent, home = before / LEDGER, new.path / before.relative_to(old.path)
        if before.name not in erasure.withdrawn and spent.is_file() and not (home / LEDGER).exists():
            for file in (Head.at(spent), spent):  # the ledger last: whoever finds it has both
                if file.is_file():
                    write_whole(home / file.name, file.read_bytes())


def _copied(old: Holdings, out: Path, write_data: Path | None) -> RunFolder:
    """Nothing was asked: the same run in another folder."""
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out}: exists and is not empty; choose another folder")
    home, one = old.folder.path, old.experiment
    copytree(home, out, ignore=ignore_patterns(LOCK), dirs_exist_ok=True)
    if write_data is not None:
        write_federation(old.sources.named, write_data)
        one = replace(one, data=_written(one, write_data.absolute()), marks=Marks(), account=_spent(one))
    moved = replace(
        one,
        data=replace(one.data, path=_moved(one.data.path, home, out)),
        persons=replace(one.persons, names=_moved(one.persons.names, home, out)),
        align=replace(one.align, withhold=_moved(one.align.withhold, home, out)),
    )
    if moved != old.experiment:
        write_whole(out / "config.toml", to_toml(moved.config()).encode())
    return RunFolder(out)


def _moved(path: Path | None, home: Path, out: Path) -> Path | None:
    """Where a file of a folder is in its copy."""
    if path is None or not path.resolve().is_relative_to(home.resolve()):
        return path
    return out.absolute() / path.resolve().relative_to(home.resolve())
