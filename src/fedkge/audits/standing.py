"""How well forgotten and test triples rank: at their own site, and asked of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedkge.audits.asked import Questions, views
from fedkge.evaluation import Known, combined, metrics, rank
from fedkge.graphs.graph import Graph, Ids
from fedkge.graphs.subgraph import renumbered
from fedkge.models import Tables
from fedkge.randomness import generator
from fedkge.runs.holdings import Holdings

MOST = 5000  #: triples of a site that withdraws that are asked about


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
