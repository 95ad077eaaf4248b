"""Whether triples are forgotten: how well they rank, who can tell them, and what re-training would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedkge.audits.candidates import drawn
from fedkge.audits.membership import SIGNALS, judged, signals
from fedkge.audits.roc import Numbers, Scored, auc, difference
from fedkge.evaluation import Known, combined, metrics, rank
from fedkge.graphs.graph import Axis, Graph, Ids
from fedkge.graphs.subgraph import renumbered
from fedkge.models import Tables
from fedkge.randomness import generator
from fedkge.runs.holdings import Holdings
from fedkge.runs.requests import Erasure

POINTS = 0.03  #: of Hits@1 that forgotten triples may be off what re-training gives
AREA = 0.05  #: that the two membership areas may differ by
MOST = 5000  #: triples of a site that withdraws that are asked about


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


# Who is asked


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


# How well forgotten and test triples rank


def standing(asked: Questions, held: Mapping[str, Tables]) -> dict[str, Any]:
    """Forget and test metrics by view and site, and over all sites that forget something."""
    known = {site: Known.from_graph(party.graph) for site, party in asked.parties.items()}
    found: dict[str, dict[str, Any]] = {}
    for view, of in views(asked, held).items():
        found[view] = {
            split: {
                site: metrics(rank(of[site], triples, known[site], site=site))
                for site, party in asked.parties.items()
                if len(triples := party.forgotten if split == "forget" else party.graph.test)
            }
            for split in ("forget", "test")
        }
    if asked.shares and len(held) > 1:
        found["others"] = _others(asked, held)
        if all(tables.second is not None for tables in held.values()):
            second = {site: tables.second or tables for site, tables in held.items()}
            found["others, global"] = _others(asked, second)
    return {view: {split: _pooled(of) for split, of in splits.items()} for view, splits in found.items()}


def _others(asked: Questions, held: Mapping[str, Tables]) -> dict[str, dict[str, dict[str, float]]]:
    return {
        split: {
            site: elsewhere(asked, held, site, party.forgotten if split == "forget" else party.graph.test)
            for site, party in asked.forgetting.items()
        }
        for split in ("forget", "test")
    }


def _pooled(sites: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    return {"sites": dict(sites), **combined(sites.values())}


def elsewhere(asked: Questions, held: Mapping[str, Tables], site: str, triples: Ids) -> dict[str, float]:
    """A site's triples asked of the others: its relation rows with their rows of entities that they share."""
    party, every = asked.parties[site], []
    for other, theirs in asked.parties.items():
        if other != site:
            source = party.graph, party.common, held[site].relations
            every.append(borrowed(*source, triples, theirs.common, held[other]))
    return combined(every)


def borrowed(
    graph: Graph, common: Graph, relations: torch.Tensor, triples: Ids, theirs: Graph, held: Tables
) -> dict[str, float]:
    """Triples of a graph ranked by another site's entity rows, among the entities that both have."""
    shared = [name for name in common.entities if name in theirs.entities]
    place = {name: i for i, name in enumerate(shared)}
    entity = np.fromiter((place.get(name, -1) for name in common.entities), np.int64, len(common.entities))
    same = np.arange(graph.n_relations)
    asked, known = (renumbered(part, entity, same) for part in (triples, graph.all()))
    asked, known = (part[(part[:, [0, 2]] >= 0).all(1)] for part in (asked, known))
    if not len(asked) or not len(shared):
        return combined(())
    at = torch.from_numpy(theirs.entities.ids(shared)).to(held.device)
    rows = Tables(held.model, held.entities[at], relations.to(held.device))
    return metrics(rank(rows, asked, Known.of(known, len(shared), graph.n_relations)))


# Who can tell them


def scored(asked: Questions, held: Mapping[str, Tables], seed: int = 0) -> dict[str, dict[str, list[Scored]]]:
    """View -> signal -> by site: forgotten triples beside held-out ones of the same relations."""
    found: dict[str, dict[str, list[Scored]]] = {}
    for view, of in views(asked, held).items():
        found[view] = {signal: [] for signal in SIGNALS}
        for site, (members, others) in _tried(asked, seed).items():
            one, two = signals(of[site], members, site), signals(of[site], others, site)
            for signal in SIGNALS:
                found[view][signal].append(Scored(one[signal], two[signal]))
    return found


def _tried(asked: Questions, seed: int) -> dict[str, tuple[Ids, Ids]]:
    """By site, forgotten triples and as many held-out ones of each relation; sites that have none are out."""
    found = {}
    for site, party in asked.forgetting.items():
        graph, forgotten = party.graph, party.forgotten
        marks = np.repeat((False, True), (len(graph.train), len(forgotten)))
        train = np.concatenate((graph.train, forgotten))
        whole = Graph(graph.entities, graph.relations, train, graph.valid, graph.test, marks)
        pairs = drawn(whole, len(train), seed, site)
        if len(pairs.members):
            found[site] = pairs.members, pairs.others
    return found


def membership(
    asked: Questions,
    held: Mapping[str, Tables],
    retrained: Mapping[str, Tables] | None = None,
    before: Mapping[str, Tables] | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """How well each signal tells forgotten triples, by view, sites pooled; and against re-training.

    `before`: the second attacker has the tables of before, too, and looks at what a triple's signal has lost.
    """
    now = scored(asked, held, seed)
    then = None if retrained is None else scored(asked, retrained, seed)
    old = None if before is None else scored(asked, before, seed)
    rows = []
    for view, by_signal in now.items():
        for signal, groups in by_signal.items():
            if not groups:
                continue
            row: dict[str, Any] = {"view": view, "signal": signal}
            row |= judged(groups, generator(seed, view, signal, "erasure"))
            if old is not None:
                lost = [_lost(a, b) for a, b in zip(old[view][signal], groups, strict=True)]
                row |= auc(lost).plain("lost")
                row |= auc(old[view][signal]).plain("before")
            if then is not None:
                row |= auc(then[view][signal]).plain("retrained")
                row |= difference(groups, then[view][signal]).plain("difference")
                if old is not None:
                    lost = [_lost(a, b) for a, b in zip(old[view][signal], then[view][signal], strict=True)]
                    row |= auc(lost).plain("lost_retrained")
            rows.append(row)
    return rows


def _lost(before: Scored, after: Scored) -> Scored:
    members, others = (a - b for a, b in zip(before, after, strict=True))
    return Scored(members, others)


# What it means


def verdicts(
    asked: Questions,
    held: Mapping[str, Tables],
    after: Mapping[str, Any],
    retrained: Mapping[str, Any] | None = None,
    told: Sequence[Mapping[str, Any]] = (),
) -> dict[str, dict[str, Any]]:
    """By view: forgotten triples' Hits@1 beside what re-training gives, or what held-out triples have.

    Where Hits@1 agree, `told`, the rows of `membership`, may tell the tables from re-trained ones all the
    same: a signal does if the interval of its difference lies beyond what two areas may differ by.
    """
    found = {}
    reference = expected(asked, held) if retrained is None else retrained
    for view, of in after.items():
        if view not in reference or not of["forget"]["count"]:
            continue
        here, there = of["forget"]["hits@1"], reference[view]["forget"]["hits@1"]
        gap = here - there
        word = "over-forgotten" if gap < -POINTS else "under-forgotten" if gap > POINTS else "as re-trained"
        found[view] = {"hits@1": here, "expected": there, "gap": gap, "verdict": word}
        found[view]["by"] = "held-out triples" if retrained is None else "re-training"
        if word == "as re-trained" and (row := _apart(view, told)) is not None:
            found[view]["verdict"] = "over-forgotten" if row["difference"] < 0 else "under-forgotten"
            found[view] |= {"signal": row["signal"], "difference": row["difference"]}
    return found


def _apart(view: str, told: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The signal that tells a view's tables best from re-trained ones; none does within the tolerance."""
    rows = [row for row in told if row["view"] == view and "difference" in row]
    rows = [row for row in rows if row["difference_low"] > AREA or row["difference_high"] < -AREA]
    return max(rows, key=lambda row: abs(row["difference"]), default=None)


def expected(asked: Questions, held: Mapping[str, Tables]) -> dict[str, Any]:
    """The same shape as `standing`: what held-out triples of the forgotten ones' relations have.

    At a site that has none of these, held-out triples of all relations stand in, as in mode target.
    """
    known = {site: Known.from_graph(party.graph) for site, party in asked.parties.items()}
    tried: dict[str, tuple[Ids, Numbers]] = {}
    for site, party in asked.forgetting.items():
        valid = party.graph.valid
        counts = np.bincount(party.forgotten[:, 1], minlength=party.graph.n_relations)
        there = np.bincount(valid[:, 1], minlength=party.graph.n_relations)
        chosen = valid[counts[valid[:, 1]] > 0]
        weight = (counts / np.maximum(there, 1))[chosen[:, 1]]
        tried[site] = (chosen, weight) if len(chosen) else (valid, np.ones(len(valid)))
    found: dict[str, Any] = {}
    for view, of in views(asked, held).items():
        sites = {}
        for site, (triples, weight) in tried.items():
            ranks = rank(of[site], triples, known[site], site=site)
            each = weight[ranks.triple]
            hits = float((ranks.values() <= 1) @ each / each.sum())
            sites[site] = hits, len(asked.parties[site].forgotten)
        total = sum(n for _, n in sites.values())
        mean = sum(hits * n for hits, n in sites.values()) / total
        found[view] = {"forget": {"hits@1": mean, "count": total}}
    return found


def withdrawn(
    old: Holdings, run: Holdings, site: str, device: torch.device | str = "cpu"
) -> dict[str, float]:
    """What the others know of a site that has left: its triples, by its old relation rows."""
    graph, common = old.sources.named[site], old.sources.federation[site]
    relations = old.tables(site, device).relations
    triples = generator(0, site, "withdrawn").permutation(graph.train)[:MOST]
    return combined(
        borrowed(graph, common, relations, triples, of, run.tables(other, device))
        for other, of in run.sources.federation.items()
        if other != site
    )
