"""From an experiment to its data: the one way, for every command."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from fedkge.errors import ConfigError, DataWarning, suggest
from fedkge.exchange.announce import fingerprint, identify
from fedkge.graphs.across import Leaks, leaks, told, without_leaks
from fedkge.graphs.graph import Axis, Federation, Graph, Mask
from fedkge.graphs.links import Link
from fedkge.graphs.persons import warn_of_nobody
from fedkge.graphs.said import lifted
from fedkge.graphs.unify import Unified
from fedkge.methods import Member
from fedkge.nodes.identity import Identity
from fedkge.nodes.protection import check_validation, trained_on
from fedkge.runs.account import account_of, person_key
from fedkge.runs.aligning import aligned, listed, secret_of
from fedkge.runs.checks import check_apart, check_federation, check_marks, check_splits
from fedkge.runs.dividing import numbered, split_by, with_marks
from fedkge.runs.experiment import Data, Experiment


@dataclass(frozen=True, eq=False)
class Sources:
    """The graphs of an experiment, under their own names and under those that say who is the same."""

    named: Federation
    unified: Unified
    said: Mapping[Axis, Sequence[Link]] = field(default_factory=dict)  #: links that the graphs have in them

    @property
    def federation(self) -> Federation:
        """Equal names, and only these, are the same thing."""
        return self.unified.federation

    @cached_property
    def leaks(self) -> dict[str, Leaks]:
        """Triples that one site is measured by and another trains on, after alignment."""
        return leaks(self.federation)

    @classmethod
    def of(cls, experiment: Experiment, federation: Federation) -> Sources:
        """Of graphs at hand: persons named, and numbered as the experiment says, and checked."""
        federation, said = lifted(federation)
        persons, all_of_it = experiment.persons, experiment.privacy.by_person
        named = numbered(experiment, persons.of(federation, all_of_it))
        check_federation(named)
        unified = aligned(experiment.align, named, said)
        named, common = (
            persons.everywhere(graphs, unified.federation, all_of_it)
            for graphs in (named, unified.federation)
        )
        if all_of_it:
            warn_of_nobody(common)
        return cls(named, replace(unified, federation=common), said)

    def members(self, experiment: Experiment) -> dict[str, Member]:
        """Who trains on what."""
        for site in experiment.accept:
            if site not in self.named:
                raise ConfigError(f"accept.{site}: no such site{suggest(site, self.named)}")
        self._tell_withheld(experiment)
        members = dict(experiment.method.members(self.federation))
        if experiment.data.drop_leaks == "across":
            kept = without_leaks({name: one.graph for name, one in members.items()}, self.federation)
            members = {name: replace(one, graph=kept[name]) for name, one in members.items()}
        else:
            self._tell_leaks(experiment)
        check_marks(experiment, {name: member.graph for name, member in members.items()})
        for member in members.values():
            check_apart(experiment, member)
            for site, part in member.parts.items():
                check_validation(experiment, site, part.graph)
        found = {}
        for name, member in members.items():
            key = partial(person_key, account_of(experiment, name))
            found[name] = replace(member, graph=trained_on(experiment, name, member.graph, key))
        return found

    def identity(self, experiment: Experiment, member: Member) -> Identity:
        """What a member's rows are announced as, and called when they are saved."""
        secret = secret_of(experiment.align)
        names = {Axis.ENTITY: member.graph.entities, Axis.RELATION: member.graph.relations}
        ids = {axis: identify(own, axis, secret) for axis, own in names.items()}
        named = {site: self.named[site] for site in member.parts}
        apart = [self._withheld(experiment, site) for site in named]
        hidden = {axis: set[int]().union(*(of[axis] for of in apart)) for axis in Axis}
        known = None if secret is None else fingerprint(secret)
        return Identity(ids, named, {axis: rows for axis, rows in hidden.items() if rows}, known)

    def announced(self, experiment: Experiment) -> dict[str, dict[Axis, list[str]]]:
        """The names that each site announces, as all sites call them."""
        found = {}
        for site, graph in self.federation.items():
            hidden = self._withheld(experiment, site)
            names = {Axis.ENTITY: graph.entities, Axis.RELATION: graph.relations}
            found[site] = {
                axis: [name for i, name in enumerate(own) if i not in hidden[axis]]
                for axis, own in names.items()
            }
        return found

    def _withheld(self, experiment: Experiment, site: str) -> dict[Axis, set[int]]:
        """What a site does not announce: persons, what only triples about them mention, what a file names."""
        found = experiment.persons.hidden(self.named[site])
        found[Axis.ENTITY] |= self._listed(experiment, site)
        return found

    def _tell_withheld(self, experiment: Experiment) -> None:
        """Say what is not announced because only triples about persons mention it."""
        if experiment.method.shares or experiment.method.hubless:
            for site, graph in self.named.items():
                experiment.persons.tell_hidden(site, graph)

    def _tell_leaks(self, experiment: Experiment) -> None:
        """Say how much of what a site is measured by others train on, if anything of theirs reaches it."""
        found = told(self.leaks, self.federation)
        if found is not None and experiment.method.kind != "alone":
            warnings.warn(
                f"{found} stand in the train of another site, from which they may have been learnt; "
                "data.drop_leaks = 'across' leaves them out of train",
                DataWarning,
                stacklevel=3,
            )

    def _listed(self, experiment: Experiment, site: str) -> set[int]:
        if not (experiment.method.shares or experiment.method.hubless):
            return set()
        return listed(experiment.align, self.named, site)


class Loader:
    """Loads experiments' data, and what several of them have in common once."""

    def __init__(self) -> None:
        self._read: dict[Any, dict[str, Graph]] = {}
        self._sources: dict[Any, Sources] = {}

    def load(self, experiment: Experiment) -> Sources:
        """Read, mark, number, check and align; experiments that agree on all of it share the outcome."""
        data, marks = experiment.data, experiment.marks
        drawn = data.ratio is not None or marks.share is not None  # what is drawn depends on the seed
        known = (
            data,
            marks,
            experiment.seed if drawn else None,
            (experiment.privacy.mode, experiment.privacy.unit),
            experiment.persons,
            experiment.align,
        )
        if known not in self._sources:
            read = replace(data, ratio=None, held_out=None)
            if read not in self._read:
                self._read[read] = read_data(read)
            self._sources[known] = Sources.of(experiment, divided(experiment, self._read[read]))
            for site, graph in self._sources[known].named.items():
                check_splits(site, graph)
        return self._sources[known]


def load(experiment: Experiment) -> Sources:
    """The data of one experiment."""
    return Loader().load(experiment)


def read_data(data: Data) -> dict[str, Graph]:
    """The graphs as they are."""
    from fedkge.graphs.datasets import load as known
    from fedkge.graphs.files import read_federation
    from fedkge.graphs.table import PLAIN

    if data.name is not None:
        return dict(known(data.name, strict=data.strict))
    assert data.path is not None
    return read_federation(
        data.path, strict=data.strict, drop_leaks=bool(data.drop_leaks), table=data.table or PLAIN
    )


def divided(experiment: Experiment, federation: Federation) -> Federation:
    """The same graphs, marked and split where the options say so.

    Where only unrestricted triples may be held out, marks are set and persons are found before the split.
    Alignment tells which entities are persons of another site.
    """
    data, seed = experiment.data, experiment.seed
    mark = partial(with_marks, experiment.marks, seed=seed)
    if data.held_out != "unrestricted":
        return mark(split_by(data, federation, seed))
    if experiment.persons.named:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # they are said when the graphs are split
            named = Sources.of(experiment, federation).named
        federation = {
            site: replace(graph, persons=_same_mask(graph, named[site])) for site, graph in federation.items()
        }
    return split_by(data, mark(federation), seed)


def _same_mask(graph: Graph, other: Graph) -> Mask:
    """Which entities are persons in `other`, the same site's graph with other ids."""
    assert other.persons is not None
    persons = {other.entities[i] for i in np.flatnonzero(other.persons).tolist()}
    return np.fromiter((name in persons for name in graph.entities), np.bool_, graph.n_entities)
