"""Who is asked what about forgotten triples: one set of questions and views for every model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fedkge.graphs.graph import Axis, Graph, Ids
from fedkge.models import Tables
from fedkge.runs.holdings import Holdings
from fedkge.runs.requests import Erasure


@dataclass(frozen=True, eq=False)
class Party:
    """A site as it is asked: its retained graph, the same under common names, and what it has forgotten."""

    graph: Graph
    common: Graph
    forgotten: Ids  # [m, 3] in the graph's ids


@dataclass(frozen=True, eq=False)
class Questions:
    """What is asked of every model, with one and the same filter: everything that is retained."""

    parties: Mapping[str, Party]
    shares: Sequence[Axis]
    gone: Mapping[str, int]  #: forgotten training triples of names that are gone: nobody can be asked

    @classmethod
    def of(cls, erasure: Erasure, new: Holdings) -> Questions:
        """About sites that forget triples; where sites withdraw, about what they leave at the others."""
        parties, gone = {}, {}
        for site, graph in new.sources.named.items():
            lesson, whole = erasure.rest(site, graph), erasure.lesson(site)
            forgotten = graph.train[:0] if lesson is None else lesson.forgotten
            parties[site] = Party(graph, new.sources.federation[site], forgotten)
            if whole is not None and len(forgotten) < len(whole.forgotten):
                gone[site] = len(whole.forgotten) - len(forgotten)
        return cls(parties, new.experiment.method.shares, gone)

    @property
    def forgetting(self) -> dict[str, Party]:
        return {site: party for site, party in self.parties.items() if len(party.forgotten)}

    def tables(self, run: Holdings, device: torch.device | str = "cpu") -> dict[str, Tables]:
        """What the sites of a run hold, in the rows of the retained graphs."""
        found = {}
        for site, party in self.parties.items():
            old, tables = run.sources.named[site], run.tables(site, device)
            e, r = old.entities.ids(party.graph.entities), old.relations.ids(party.graph.relations)
            found[site] = _rows(tables, torch.from_numpy(e).to(device), torch.from_numpy(r).to(device))
        return found


def _rows(tables: Tables, entities: torch.Tensor, relations: torch.Tensor) -> Tables:
    second = None if tables.second is None else _rows(tables.second, entities, relations)
    return Tables(tables.model, tables.entities[entities], tables.relations[relations], second=second)


def views(asked: Questions, held: Mapping[str, Tables]) -> dict[str, dict[str, Tables]]:
    """View -> site -> tables: local, global where there is a second table, and hub where rows travel.

    The hub's are the means over owners of the rows that travel, with the rest of the site's own.
    """
    found = {"local": {site: _single(tables) for site, tables in held.items()}}
    if all(tables.second is not None for tables in held.values()):
        found["global"] = {site: _single(tables.second or tables) for site, tables in held.items()}
    if asked.shares:
        found["hub"] = _hub(asked, held)
    return found


def _single(tables: Tables) -> Tables:
    return Tables(tables.model, tables.entities, tables.relations)


def _hub(asked: Questions, held: Mapping[str, Tables]) -> dict[str, Tables]:
    travelling = {site: _single(tables.second or tables) for site, tables in held.items()}
    rows = {site: {axis: tables.table(axis) for axis in Axis} for site, tables in travelling.items()}
    for axis in asked.shares:
        names = {site: party.common.names(axis) for site, party in asked.parties.items()}
        place = {name: i for i, name in enumerate(dict.fromkeys(n for of in names.values() for n in of))}
        first = next(iter(travelling.values())).table(axis)
        total, count = first.new_zeros(len(place), first.shape[1]), first.new_zeros(len(place), 1)
        at = {site: torch.tensor([place[n] for n in of], device=first.device) for site, of in names.items()}
        for site, tables in travelling.items():
            total.index_add_(0, at[site], tables.table(axis))
            count.index_add_(0, at[site], torch.ones_like(tables.table(axis)[:, :1]))
        for site in travelling:
            rows[site][axis] = (total / count)[at[site]]
    return {
        site: Tables(tables.model, rows[site][Axis.ENTITY], rows[site][Axis.RELATION])
        for site, tables in travelling.items()
    }
