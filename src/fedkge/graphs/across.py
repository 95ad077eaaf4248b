"""Triples that one site is measured by and another trains on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from fedkge.errors import ConfigError
from fedkge.graphs.graph import Federation, Graph, Ids, Mask
from fedkge.graphs.pool import united

HELD_OUT = ("valid", "test")


@dataclass(frozen=True)
class Leaks:
    """Of one site."""

    valid: int  #: its validation triples that another site trains on
    test: int  #: its test triples that another site trains on
    train: int  #: its training triples that another site is measured by

    def plain(self) -> dict[str, int]:
        return asdict(self)


def leaks(federation: Federation) -> dict[str, Leaks]:
    """How many there are, by site. Equal names are the same thing, so graphs have to be aligned before."""
    codes = _coded(list(federation.values()))
    trained, measured = _owned(codes, ("train",)), _owned(codes, HELD_OUT)
    return {
        site: Leaks(
            valid=_elsewhere(i, own["valid"], trained),
            test=_elsewhere(i, own["test"], trained),
            train=_elsewhere(i, own["train"], measured),
        )
        for i, (site, own) in enumerate(zip(federation, codes, strict=True))
    }


def without_leaks(graphs: Mapping[str, Graph], federation: Federation) -> dict[str, Graph]:
    """The same graphs without training triples that any site of the federation is measured by.

    A graph may be of one site, or pooled. Valid and test stay as they are, so that all methods are asked the
    same questions, and so that figures with and without this can be compared.
    """
    codes = _coded([*federation.values(), *graphs.values()])
    asked = [own[split] for own in codes[: len(federation)] for split in HELD_OUT]
    measured = np.unique(np.concatenate(asked))
    trained = zip(graphs.items(), codes[len(federation) :], strict=True)
    return {name: _kept(name, graph, own["train"], measured) for (name, graph), own in trained}


def _kept(name: str, graph: Graph, train: Ids, measured: Ids) -> Graph:
    kept: Mask = ~np.isin(train, measured)
    if kept.all():
        return graph
    if not kept.any():
        raise ConfigError(
            f"data.drop_leaks: all training triples of {name!r} stand in the valid or test of other sites; "
            "'across' leaves none to train on"
        )
    marks = None if graph.confidential is None else graph.confidential[kept]
    return replace(graph, train=graph.train[kept], confidential=marks)


def _coded(graphs: Sequence[Graph]) -> list[dict[str, Ids]]:
    """A number for every triple, by graph and split: equal triples, by name, have equal numbers."""
    entities, where_e, relations, where_r = united({str(i): graph for i, graph in enumerate(graphs)})
    pairs, tails = [], []  # of each split: heads with relations, and tails
    for graph, own_e, own_r in zip(graphs, where_e.values(), where_r.values(), strict=True):
        for triples in graph.splits().values():
            h, r, t = triples.T
            pairs.append(own_e[h] * len(relations) + own_r[r])
            tails.append(own_e[t])
    pair = np.unique(np.concatenate(pairs), return_inverse=True)[1].reshape(-1)  # keeps codes below 2^63
    codes = pair * len(entities) + np.concatenate(tails)
    parts = iter(np.split(codes, np.cumsum([len(one) for one in tails])[:-1]))
    return [{str(split): next(parts) for split in graph.splits()} for graph in graphs]


def _owned(codes: Sequence[Mapping[str, Ids]], splits: Sequence[str]) -> tuple[Ids, Ids]:
    """The distinct triples of these splits, sorted, and which graph has each; -1: several have it."""
    every = [own[split] for own in codes for split in splits]
    who = np.repeat(np.repeat(np.arange(len(codes)), len(splits)), [len(one) for one in every])
    found, first, group = np.unique(np.concatenate(every), return_index=True, return_inverse=True)
    owner = who[first]
    owner[group.reshape(-1)[who != owner[group.reshape(-1)]]] = -1
    return found, owner


def _elsewhere(graph: int, triples: Ids, owned: tuple[Ids, Ids]) -> int:
    """How many of `triples` a graph other than this one has."""
    found, owner = owned
    if not len(found):
        return 0
    place = np.minimum(np.searchsorted(found, triples), len(found) - 1)
    return int(((found[place] == triples) & (owner[place] != graph)).sum())


def told(found: Mapping[str, Leaks], federation: Federation) -> str | None:
    """The test and valid triples of all sites that another site trains on, in words, if there are any."""
    counts = {split: sum(getattr(one, split) for one in found.values()) for split in HELD_OUT}
    if not any(counts.values()):
        return None
    every = {split: sum(len(graph.split(split)) for graph in federation.values()) for split in HELD_OUT}
    parts = (f"{counts[split]:,} of {every[split]:,} {split} triples" for split in reversed(HELD_OUT))
    return " and ".join(parts)
