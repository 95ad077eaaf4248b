"""Unlearning inside a run: what its nodes begin with, and what sites that forget do before they train."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedkge.graphs.graph import Axis, Federation
from fedkge.methods.unlearn import Forgetting, Unlearn
from fedkge.models import Tables
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment
from fedkge.runs.holdings import Holdings
from fedkge.runs.requests import Erasure
from fedkge.runtimes.loop import Carrier
from fedkge.runtimes.simulate import Simulated


class Work:
    """Prepares the nodes of a run; `noted` gets what each site that forgets says of it."""

    def __init__(
        self,
        old: Holdings,
        erasure: Erasure,
        how: Unlearn,
        after: Federation,
        noted: dict[str, dict[str, Any]],
    ) -> None:
        self.old, self.erasure, self.how, self.after, self.noted = old, erasure, how, after, noted

    def prepare(self, nodes: Carrier) -> None:
        """Give every site its old tables, less what is gone, after it has forgotten in them."""
        if not isinstance(nodes, Simulated):
            raise TypeError("unlearning is simulated")
        self.nodes, self.terms = nodes, nodes.experiment
        self.owners = _owners(nodes.sources, nodes.experiment)
        if nodes.round == 0:
            moved = {name: self._begin(name) for name in nodes.sites}
            for name, of in moved.items():  # after all have their tables
                self._beyond(name, of)
        for name in nodes.sites:
            self._follow(name)

    def _begin(self, name: str) -> dict[Axis, Tensor]:
        """A site's tables, after it has forgotten in them; by how much that moved the rows that travel."""
        learner = self.nodes.sites[name].learner
        device = learner.site.tables.device
        tables = self.old.tables(name, device)
        lesson = self.erasure.lesson(name)
        moved: dict[Axis, Tensor] = {}
        if lesson is not None:
            captured = self.nodes.how.captured
            work = Forgetting(self.how, self.terms.trainer, lesson, tables, self.terms.seed, captured)
            travelling = tables.second or tables
            before = {axis: travelling.table(axis).clone() for axis in self.terms.method.shares}
            said = {"interference": work.interfere(0)}
            moved = {axis: travelling.table(axis) - own for axis, own in before.items()}
            said["decay"] = work.decay(self.terms.method)
            self._note(name, 0, said)
        places = self._places(name, device)
        kept = _chosen(tables, places)
        moved = {axis: of[places[axis]] for axis, of in moved.items()}
        for axis, at in self._anew(name, device).items():
            for rows, first in ((kept, learner.site.tables), (kept.second, learner.site.tables.second)):
                if rows is not None and first is not None:
                    rows.table(axis)[at] = first.table(axis)[at]
            if axis in moved:
                moved[axis][at] = 0
        learner.take(kept)
        return moved

    def _anew(self, name: str, device: torch.device) -> dict[Axis, Tensor]:
        """Rows that a site which leaves had a part in: they begin anew, as in a new federation."""
        found = {}
        for axis in self.terms.method.shares if self.erasure.withdrawn else ():
            own = self.nodes.sources.federation[name].names(axis)
            left = [self.old.sources.federation[site].names(axis) for site in self.erasure.withdrawn]
            had = own.ids(one for one in own if any(one in names for names in left))
            found[axis] = torch.from_numpy(had).to(device)
        return found

    def _follow(self, name: str) -> None:
        """What precedes each round's training at a site that forgets."""
        lesson = self.erasure.rest(name, self.after[name])
        stack = self.nodes.stack_of[name]
        if lesson is None:
            return
        stack.avoid({name: lesson.forgotten})
        site = self.nodes.sites[name].site
        captured = self.nodes.how.captured
        work = Forgetting(self.how, self.terms.trainer, lesson, site.tables, self.terms.seed, captured)

        def forget(round: int) -> None:
            if round == 1:
                return  # it has forgotten before, in its old tables
            site.beyond.clear()
            if self.how.mode == "paper" or round > self.how.count("rounds"):
                return
            self._note(name, round - 1, {"interference": work.interfere(round - 1)})

        stack.before[name] = forget

    def _beyond(self, name: str, moved: Mapping[Axis, Tensor]) -> None:
        """Of the mean of k owners the site's part has k times what it moved by: nothing is averaged away."""
        site = self.nodes.sites[name].site
        for axis, of in moved.items():
            others = torch.from_numpy(self.owners[name][axis] - 1).to(of)
            site.beyond[axis] = of * others[:, None]
            self._pass_on(name, axis, of)

    def _pass_on(self, name: str, axis: Axis, moved: Tensor) -> None:
        """Tables that never travel are moved alike at the other sites, where they are of the same model."""
        graphs = self.nodes.sources.federation
        own = graphs[name].names(axis)
        for other, node in self.nodes.sites.items():
            tables = node.site.tables
            if other == name or tables.second is None or tables.second.model != tables.model:
                continue
            if tables.second.table(axis) is tables.table(axis):
                continue
            theirs = graphs[other].names(axis)
            shared = [one for one in own if one in theirs]
            here, there = (torch.from_numpy(of.ids(shared)).to(moved.device) for of in (own, theirs))
            tables.table(axis).index_add_(0, there, moved[here])

    def _places(self, name: str, device: torch.device) -> dict[Axis, Tensor]:
        """Where the rows of the new graph are in the old tables."""
        old, new = self.erasure.before[name], self.after[name]
        return {
            Axis.ENTITY: torch.from_numpy(old.entities.ids(new.entities)).to(device),
            Axis.RELATION: torch.from_numpy(old.relations.ids(new.relations)).to(device),
        }

    def _note(self, name: str, round: int, said: Mapping[str, Any]) -> None:
        self.noted.setdefault(name, {})[str(round)] = dict(said)
        self.nodes.sites[name].note({"event": "unlearned", "round": round, **said})


def _chosen(tables: Tables, places: Mapping[Axis, Tensor]) -> Tables:
    """Some rows of tables, and of their second ones."""
    own = Tables(tables.model, tables.entities[places[Axis.ENTITY]], tables.relations[places[Axis.RELATION]])
    if tables.second is not None:
        own.second = _chosen(tables.second, places)
    return own


def _owners(sources: Sources, experiment: Experiment) -> dict[str, dict[Axis, np.ndarray[Any, Any]]]:
    """How many sites send each row, by site; 1: nobody else."""
    members = experiment.method.members(sources.federation)
    names = {
        site: {
            Axis.ENTITY: list(sources.federation[site].entities),
            Axis.RELATION: list(sources.federation[site].relations),
        }
        for site in members
    }
    sent = {axis: Counter[str]() for axis in Axis}
    for site, member in members.items():
        withheld = sources.identity(experiment, member).withheld
        for axis, own in names[site].items():
            hidden = set(withheld.get(axis, ()))
            sent[axis].update(name for i, name in enumerate(own) if i not in hidden)
    return {
        site: {
            axis: np.array([max(1, sent[axis][name]) for name in own], np.int64) for axis, own in of.items()
        }
        for site, of in names.items()
    }
