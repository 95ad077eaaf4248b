"""What is attacked: the tables that a run's sites kept, and the graphs that say who was a member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedkge.errors import DataError, suggest
from fedkge.graphs.graph import Federation, Graph
from fedkge.graphs.subgraph import in_name_order
from fedkge.methods.base import Part
from fedkge.models import Tables
from fedkge.runs.data import Sources, load
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder


@dataclass(frozen=True, eq=False)
class Target:
    """A run that has ended."""

    name: str
    experiment: Experiment
    sources: Sources  #: what the run was trained on
    federation: Federation  #: the same under its own names; two runs that are compared have the same marks
    tables: dict[str, Tables]  # by site
    spent: Mapping[str, tuple[float, float]]  # site -> (ε, δ), where its guarantee is formal

    @classmethod
    def open(cls, path: Path, sites: Sequence[str] = (), name: str | None = None, view: str = "") -> Target:
        """Load a run folder; `sites` limits whose tables are read; unless given, its name is the folder's.

        `view`: tables that the run has beside those that it is measured by.
        """
        folder = RunFolder.open(path)
        summary = folder.summary()
        trained = summary["sites"]
        for site in sites:
            if site not in trained:
                raise DataError(f"{path}: no site is named {site!r}{suggest(site, trained)}")
        experiment = folder.experiment()
        sources = load(experiment)
        folder.check_data(sources.named)
        tables = {site: folder.load_site(site, view)[0] for site in sites or trained}
        spent = {
            cost["site"]: (float(cost["epsilon"]), float(cost["delta"]))
            for cost in summary["privacy"]
            if cost["guarantee"] == "formal"
        }
        called = (name or path.resolve().name) + (f", {view}" if view else "")
        return cls(called, experiment, sources, sources.named, tables, spent)

    def graph(self, site: str) -> Graph:
        return self.federation[site]

    def in_name_order(self) -> Target:
        """The same with ids in the order of names: runs with and without marks number theirs otherwise."""
        found = {site: _ordered(self.graph(site), tables) for site, tables in self.tables.items()}
        federation = {**self.federation, **{site: graph for site, (graph, _) in found.items()}}
        return replace(self, federation=federation, tables={s: own for s, (_, own) in found.items()})

    @property
    def secretive(self) -> dict[str, Tables]:
        """The sites whose triples are attacked: those with confidential ones, or if none has any, all."""
        marks = {site: self.graph(site).confidential for site in self.tables}
        marked = {site for site, marks in marks.items() if marks is not None and marks.any()}
        return {site: tables for site, tables in self.tables.items() if site in marked or not marked}


def _ordered(graph: Graph, tables: Tables) -> tuple[Graph, Tables]:
    orders = (
        np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
        for names in (graph.entities, graph.relations)
    )
    ordered = in_name_order(graph)
    return ordered, Part(ordered, *orders).of(tables)


def told_apart(paths: Sequence[Path]) -> list[str]:
    """A name for each run: of its path the last parts, as many as tell them apart."""
    parts = [path.resolve().parts for path in paths]
    names = [own[-1] for own in parts]
    for count in range(2, min(map(len, parts)) + 1):
        if len(set(names)) == len(names):
            break
        names = ["/".join(own[-count:]) for own in parts]
    return names


def pair(plain: Target, protected: Target) -> tuple[Target, Target]:
    """Two runs over the same triples; both get marks and persons of the second, or else of the first."""
    if plain.tables.keys() != protected.tables.keys():
        raise DataError(
            f"{plain.name} has the sites {', '.join(plain.tables)}, {protected.name} "
            f"{', '.join(protected.tables)}; expected two runs on the same federation"
        )
    plain, protected = (one.in_name_order() for one in (plain, protected))
    marked: list[dict[str, Graph]] = [dict(plain.federation), dict(protected.federation)]
    for site in plain.tables:
        one, two = plain.graph(site), protected.graph(site)
        bare = (replace(graph, confidential=None, persons=None).digest() for graph in (one, two))
        if next(bare) != next(bare):
            raise DataError(
                f"{plain.name} and {protected.name} have different triples at site {site!r}; "
                "expected two runs on the same federation"
            )
        marks = one.confidential if two.confidential is None else two.confidential
        persons = one.persons if two.persons is None else two.persons
        for federation, graph in zip(marked, (one, two), strict=True):
            federation[site] = replace(graph, confidential=marks, persons=persons)
    return replace(plain, federation=marked[0]), replace(protected, federation=marked[1])
