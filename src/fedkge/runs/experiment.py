"""An experiment: a TOML file whose schema is these constructors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from fedkge.errors import ConfigError, DataWarning
from fedkge.graphs.graph import Axis, Federation, Graph
from fedkge.graphs.table import Table
from fedkge.nodes.accept import Accept
from fedkge.nodes.terms import DEFAULTS, PARTS, Evaluate, Participation, Terms
from fedkge.privacy import Privacy

__all__ = [
    "DEFAULTS",
    "PARTS",
    "Accept",
    "Account",
    "Align",
    "Data",
    "Evaluate",
    "Experiment",
    "Marks",
    "Participation",
    "Persons",
    "Runtime",
]


@dataclass(frozen=True)
class Data:
    """Where the sites' graphs come from: a known name, or a folder with one folder per site."""

    name: str | None = None  #: a named data set; give a name or a path, not both
    path: Path | None = None  #: a graph, or a folder with one graph per site
    ratio: str | None = None  #: splits sites that have no valid or test, as in "8:1:1"
    held_out: Literal["all", "unrestricted"] | None = (
        None  #: by ratio; unset: all, or where privacy protects confidential triples only unrestricted ones
    )
    strict: bool = False  #: an entity that never occurs in training is an error
    drop_leaks: bool | Literal["across"] = (
        False  #: true: with `path`, a triple in two splits of a site is left out of the later one, no error;
        #: "across": that, and no site trains on a triple that another is measured by
    )
    table: Table | None = None  #: with `path`: how tables are read that are not three columns of names

    def __post_init__(self) -> None:
        if (self.name is None) == (self.path is None):
            raise ConfigError("name, path: expected one of the two")
        if self.held_out is not None and self.ratio is None:
            raise ConfigError("held_out: of no use without ratio")
        if self.table is not None and self.path is None:
            raise ConfigError("table: of no use without path")

    def __str__(self) -> str:
        return self.name or str(self.path)


@dataclass(frozen=True)
class Marks:
    """Which training triples are confidential, besides those that the data marks; these add up."""

    share: float | None = None  #: this share of each site's training triples, at random
    relations: Path | None = None  #: a file with a relation per line: all their triples
    triples: Path | None = None  #: a file of confidential triples


@dataclass(frozen=True)
class Persons:
    """Which entities are persons: their names and rows never leave a site. These add up."""

    prefixes: tuple[str, ...] = ()  #: entities with names that begin with one of these
    names: Path | None = None  #: a file with one entity per line
    relations: Path | None = None  #: a file with a relation per line: the heads of their triples
    mentions: bool = False  #: true: announces names that occur only in triples about persons
    none: bool = False  #: true: nobody is a person, as at one site of a network where others protect some

    def __post_init__(self) -> None:
        if self.none and self.named:
            raise ConfigError("none: true, while some are named; expected one of the two")

    @property
    def named(self) -> bool:
        """Whether any are."""
        return bool(self.prefixes or self.names or self.relations)

    def of(self, federation: Federation, everything: bool) -> Federation:
        """The same graphs, which know their persons; `everything` said about one is confidential."""
        from fedkge.graphs.marks import read_names
        from fedkge.graphs.persons import about_persons, name_persons

        if not self.named:
            return federation
        listed, said = (() if path is None else read_names(path) for path in (self.names, self.relations))
        found = name_persons(federation, self.prefixes, listed, said)
        return {site: about_persons(graph) for site, graph in found.items()} if everything else found

    def everywhere(self, federation: Federation, common: Federation, everything: bool) -> Federation:
        """The same graphs; who is a person at one site is one at others too, by what is `common` to them."""
        from fedkge.graphs.persons import about_persons, same_persons

        if not self.named:
            return federation
        found = same_persons(federation, common)
        return {site: about_persons(graph) for site, graph in found.items()} if everything else found

    def hidden(self, graph: Graph) -> dict[Axis, set[int]]:
        """What a site does not announce: persons, and what only triples about them mention."""
        from fedkge.graphs.persons import unmentioned

        found = unmentioned(graph)
        if self.mentions:
            nobody = np.zeros(graph.n_entities, np.bool_)
            persons = nobody if graph.persons is None else graph.persons
            found = {Axis.ENTITY: persons, Axis.RELATION: np.zeros(graph.n_relations, np.bool_)}
        return {axis: set(np.flatnonzero(rows).tolist()) for axis, rows in found.items()}

    def tell_hidden(self, site: str, graph: Graph) -> None:
        """Say what is not announced because only triples about persons mention it."""
        hidden = {axis: len(rows) for axis, rows in self.hidden(graph).items()}
        entities = hidden[Axis.ENTITY] - (0 if graph.persons is None else int(graph.persons.sum()))
        if entities or hidden[Axis.RELATION]:
            warnings.warn(
                f"site {site!r}: {entities:,} entities and {hidden[Axis.RELATION]:,} relations are not "
                "announced, because only triples about persons mention them; if these names are public, "
                "say persons.mentions = true",
                DataWarning,
                stacklevel=3,
            )

    def check(self, privacy: Privacy) -> None:
        """An error where persons are to be protected and none is named."""
        if privacy.by_person and not self.named and not self.none:
            raise ConfigError(
                "privacy.unit: 'entity' protects persons, and none is named; say who they are, as in "
                "persons = { prefixes = ['patient/'] }, or by persons.names or persons.relations; a site "
                "that has none says persons = { none = true }"
            )


@dataclass(frozen=True)
class Align:
    """Who is the same at different sites."""

    names: bool = True  #: equal names mean the same; false: only links count
    entities: Path | None = None  #: links between names: TSV pairs, or owl:sameAs in RDF
    relations: Path | None = None  #: the same for relations; in RDF also owl:equivalentProperty
    secret: Path | None = None  #: a file that the sites share: the hub sees pseudonyms; unset: names
    withhold: Path | None = None  #: a file with one entity per line; no site announces these


@dataclass(frozen=True)
class Account:
    """Where sites keep what outlives their runs."""

    folder: Path | None = None  #: one folder per site; unset: .fedkge beside the data, or the user's own


@dataclass(frozen=True)
class Runtime:
    """Who carries the messages between hub and sites; the results are the same."""

    name: Literal["simulate", "processes"] = "simulate"  #: processes: one for the hub and one for each site
    timeout: float = 600.0  #: processes: seconds to wait for a round's answers

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise ConfigError(f"timeout: expected a number above 0, got {self.timeout}")


@dataclass(frozen=True, kw_only=True)
class Experiment(Terms):
    """Everything that decides a run's result, besides the device."""

    data: Data
    name: str | None = None  #: what reports call the run; changes nothing else
    start: Path | None = None  #: a finished run; sites start with its tables, found by name
    align: Align = field(default_factory=Align)
    marks: Marks = field(default_factory=Marks)
    persons: Persons = field(default_factory=Persons)
    account: Account = field(default_factory=Account)
    accept: Mapping[str, Accept] = field(default_factory=dict)  #: by site: what it lets the hub ask for
    runtime: Runtime = field(default_factory=Runtime)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name is not None and not self.name.strip():
            raise ConfigError("name: expected a word or more, got nothing")
        self.persons.check(self.privacy)
        if self.data.ratio is not None and self.data.held_out is None:
            protects = self.privacy.mode in ("strict", "u-only") or self.persons.named
            chosen: Literal["all", "unrestricted"] = "unrestricted" if protects else "all"
            object.__setattr__(self, "data", replace(self.data, held_out=chosen))
        if self.start is not None and self.privacy.mode != "off":
            raise ConfigError(
                f"start: with privacy.mode {self.privacy.mode!r} the tables of another run cannot be gone on "
                "from: what it has released of the same triples is not in this run's ledger; expected "
                "privacy.mode = 'off', or start unset"
            )

    def alike(self, other: Experiment) -> bool:
        """Whether both would give the same run, whatever it is called."""
        return replace(self, name=None).config() == replace(other, name=None).config()

    @classmethod
    def _parts(cls) -> tuple[str, ...]:
        return ("data", *super()._parts())
