"""Unlearning inside a run: what its nodes begin with, and what sites that forget do before they train."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedkge.errors import ConfigError, DataWarning
from fedkge.graphs.graph import Axis, Federation, Split
from fedkge.graphs.persons import about_nobody
from fedkge.methods.unlearn import Forgetting, Lesson, Unlearn
from fedkge.models import Tables
from fedkge.nodes.displaced import Displaced
from fedkge.nodes.journal import read_journal
from fedkge.nodes.ledgers import JOURNAL
from fedkge.nodes.stack import Stack
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runs.holdings import Holdings
from fedkge.runs.requests import Erasure
from fedkge.runtimes.loop import Carrier
from fedkge.runtimes.simulate import Simulated
from fedkge.training import Trainer

UNLEARNED = "unlearned"  #: the event that a site's journal has of each interference


class Work:
    """Prepares the nodes of a run; what each site that forgets says of it is in its journal.

    `trainer` is what the old tables were first trained by.
    """

    def __init__(
        self,
        old: Holdings,
        erasure: Erasure,
        how: Unlearn,
        trainer: Trainer,
        after: Sources,
    ) -> None:
        self.trainer = trainer
        self.old, self.how = old, how
        self.erasure = erasure.among(learnt(old.experiment, old.sources))
        self.after = learnt(old.experiment, after)
        self.moved: dict[str, dict[Axis, Tensor]] = {}  # by how much sites have moved rows that travel

    def prepare(self, nodes: Carrier) -> None:
        """Give every site its old tables, less what is gone, after it has forgotten in them."""
        if not isinstance(nodes, Simulated):
            raise TypeError("unlearning is simulated")
        self.nodes, self.terms = nodes, nodes.experiment
        for stack in nodes.stacks:
            lessons = [one for name in stack.names if (one := self.erasure.rest(name, self.after[name]))]
            work = self._forgetting(lessons, {one.site: stack.sites[one.site].tables for one in lessons})
            if nodes.round == 0:
                self._begin(stack, work)
            if work is not None:
                stack.avoid({one.site: one.forgotten for one in lessons})
                stack.before[lessons[0].site] = partial(self._forget, stack, work)
        if nodes.round == 0:
            self._displace(nodes)

    def _displace(self, nodes: Simulated) -> None:
        """Have sites tell with what they announce how far they moved rows that travel."""
        second = self.terms.method.second(self.terms.embedding)
        part = self.how.passed if self.how.passed is not None else 1.0 if second is None else second.taught
        nodes.hub.unlearns = bool(self.moved)
        for name, site in nodes.sites.items() if self.moved else ():
            site.displaced = Displaced(self.terms, part, self.moved.get(name, {}))

    def _forgetting(self, lessons: Sequence[Lesson], tables: Mapping[str, Tables]) -> Forgetting | None:
        if not lessons:
            return None
        rest = self.terms.seed, self.nodes.how.captured
        return Forgetting(self.how, self.trainer, lessons, tables, *rest)

    def _begin(self, stack: Stack, work: Forgetting | None) -> None:
        """The tables of a stack's sites, after those that forget have done so in their old ones."""
        tables = {name: self.old.tables(name, stack.tables.device) for name in stack.names}
        lessons = [one for name in stack.names if (one := self.erasure.lesson(name))]
        if not all(self._keeps_names(one.site) for one in lessons):
            work = self._forgetting(lessons, tables)
        if work is not None:
            travelling = {name: tables[name].second or tables[name] for name in work.lessons}
            shares = self.terms.method.shares
            before = {n: {axis: own.table(axis).clone() for axis in shares} for n, own in travelling.items()}
            pushed = work.interfere(0, tables)
            for name, of in before.items():
                self.moved[name] = {axis: travelling[name].table(axis) - own for axis, own in of.items()}
            decayed = work.decay(self.terms.method, tables)
            for name in work.lessons:
                self._note(name, 0, {"interference": pushed[name], "decay": decayed[name]})
        for name in stack.names:
            self._take(name, tables[name])

    def _take(self, name: str, tables: Tables) -> None:
        """Begin with a site's old tables, less what is gone."""
        learner, device = self.nodes.sites[name].learner, tables.device
        places, first = self._places(name, device), learner.site.tables
        kept, moved = _chosen(tables, places), self.moved.get(name, {})
        for axis, of in moved.items():
            moved[axis] = of[places[axis]]
        for axis, at in self._anew(name, device).items():
            for rows, anew in ((kept, first), (kept.second, first.second)):
                if rows is not None and anew is not None:
                    rows.table(axis)[at] = anew.table(axis)[at]
            if axis in moved:
                moved[axis][at] = 0
        learner.take(kept)

    def _keeps_names(self, name: str) -> bool:
        old, new = self.erasure.before[name], self.after[name]
        return old.entities == new.entities and old.relations == new.relations

    def _anew(self, name: str, device: torch.device) -> dict[Axis, Tensor]:
        """Rows that a site which leaves had a part in: they begin anew, as in a new federation."""
        found = {}
        for axis in self.terms.method.shares if self.erasure.withdrawn else ():
            own = self.nodes.sources.federation[name].names(axis)
            left = [self.old.sources.federation[site].names(axis) for site in self.erasure.withdrawn]
            had = own.ids(one for one in own if any(one in names for names in left))
            found[axis] = torch.from_numpy(had).to(device)
        return found

    def _forget(self, stack: Stack, work: Forgetting, round: int) -> None:
        """What precedes each round's training at sites that forget."""
        if round == 1:
            return  # they have forgotten before, in their old tables
        for name in work.lessons:
            stack.sites[name].beyond.clear()
        if self.how.mode == "paper" or round > self.how.count("rounds"):
            return
        said = work.interfere(round - 1, {name: stack.sites[name].tables for name in work.lessons})
        for name, of in said.items():
            self._note(name, round - 1, {"interference": of})

    def _places(self, name: str, device: torch.device) -> dict[Axis, Tensor]:
        """Where the rows of the new graph are in the old tables."""
        old, new = self.erasure.before[name], self.after[name]
        return {
            Axis.ENTITY: torch.from_numpy(old.entities.ids(new.entities)).to(device),
            Axis.RELATION: torch.from_numpy(old.relations.ids(new.relations)).to(device),
        }

    def _note(self, name: str, round: int, said: Mapping[str, Any]) -> None:
        self.nodes.sites[name].note({"event": UNLEARNED, "round": round, **said})


def noted(folder: RunFolder, sites: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What sites that forget have said of it, by round; of a round that was begun twice the last."""
    found: dict[str, dict[str, Any]] = {}
    for site in sites:
        for event in read_journal(folder.path / "sites" / site / JOURNAL):
            if event.pop("event") == UNLEARNED:
                event.pop("time")
                found.setdefault(site, {})[str(event.pop("round"))] = event
    return found


def learnt(experiment: Experiment, sources: Sources) -> Federation:
    """What tables are trained and stopped on: the graphs under the sites' names, less what options leave out.

    In mode u-only nothing confidential has a part in it, nor held-out triples that cannot be told from it.
    """
    openly = experiment.privacy.mode == "u-only"
    if not openly and experiment.data.drop_leaks != "across":
        return sources.named
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the run says them
        members = sources.members(replace(experiment, accept={}))
    found = {}
    for site, graph in sources.named.items():
        train = members[site].graph.train
        found[site] = replace(graph, train=train, confidential=None)
        if openly:
            valid, test = about_nobody(graph, Split.VALID), about_nobody(graph, Split.TEST)
            valid = valid[np.isin(valid[:, 1], train[:, 1])]
            if not len(valid):
                raise ConfigError(
                    f"privacy.mode: 'u-only', and all validation triples of {site!r} are confidential: no "
                    "level can be estimated in the open; expected mode exact"
                )
            found[site] = replace(found[site], valid=valid, test=test)
    return found


def _chosen(tables: Tables, places: Mapping[Axis, Tensor]) -> Tables:
    """Some rows of tables, and of their second ones."""
    own = Tables(tables.model, tables.entities[places[Axis.ENTITY]], tables.relations[places[Axis.RELATION]])
    if tables.second is not None:
        own.second = _chosen(tables.second, places)
    return own
