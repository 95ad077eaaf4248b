"""Divide triples into train, valid and test so that train knows every entity and every relation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.graphs.graph import Graph, Ids
from fedkge.graphs.persons import NOBODY, belongs, digests
from fedkge.graphs.subgraph import first_positions, merged, regrouped
from fedkge.randomness import generator

TRAIN, VALID, TEST = 0, 1, 2


def parse_ratio(text: str) -> tuple[float, float, float]:
    """`8:1:1` as three numbers; `9:1` leaves test empty."""
    try:
        parts = [float(part) for part in text.split(":")]
    except ValueError:
        raise ConfigError(f"ratio: expected numbers as in 8:1:1, got {text!r}") from None
    return _checked([*parts, 0.0] if len(parts) == 2 else parts)


def split(
    graph: Graph, ratio: Sequence[float] = (8, 1, 1), seed: int = 0, keep_confidential: bool = False
) -> Graph:
    """The same triples, divided anew at random by `ratio` = train:valid:test.

    Every entity and every relation has a triple in train. The exception are those that only triples about
    persons mention, if such triples are kept apart (see below). Where that leaves too few
    triples to hold out, what can be held out is shared in the proportion of valid to test, every triple
    left in train is the last of some entity or relation, and a warning says so.
    A held-out triple loses its confidential mark, which only means something in train; a warning counts
    the marks lost. With `keep_confidential` all marked triples stay in train, and the others are divided as
    if there were no marked ones: nothing about valid and test depends on them. What was held out before and
    has a relation of which every training triple is marked gets a mark, too. Triples about persons, if the
    graph knows any, have no part in this: each is held out or not by itself (`_of_persons`).
    """
    ratio = _checked(ratio)
    whole = _marked_alike(graph) if keep_confidential else merged(graph)
    triples = whole.train
    if not len(triples):
        raise DataError("nothing to split: the graph has no triples")
    kept = np.zeros(len(triples), np.bool_)
    if keep_confidential and whole.confidential is not None:
        kept = whole.confidential
        if kept.all():
            raise DataError("nothing to hold out: all triples are confidential")
    apart = np.full(len(triples), TRAIN, np.int64)
    if keep_confidential and whole.persons is not None:
        apart = _of_persons(whole, ratio, seed)
        kept = kept | (belongs(whole, triples) != NOBODY)
    wanted = [round((~kept).sum() * part / sum(ratio)) for part in ratio[1:]]
    out = np.flatnonzero(~kept)[spare(triples[~kept], sum(wanted), generator(seed, "split"))]
    if len(out) < sum(wanted):
        n_valid = round(len(out) * wanted[0] / sum(wanted))
        warnings.warn(
            f"only {len(out):,} of {int((~kept).sum()):,} triples can be held out without losing an entity "
            f"or relation from train: valid {n_valid:,} instead of {wanted[0]:,}, "
            f"test {len(out) - n_valid:,} instead of {wanted[1]:,}",
            DataWarning,
            stacklevel=2,
        )
    else:
        n_valid = wanted[0]
    apart[out[:n_valid]], apart[out[n_valid:]] = VALID, TEST
    stays = apart == TRAIN
    if whole.confidential is not None and (lost := int(whole.confidential[~stays].sum())):
        warnings.warn(
            f"{lost:,} of {int(whole.confidential.sum()):,} confidential triples were moved to valid or "
            "test and lost their marks; only training triples can be marked",
            DataWarning,
            stacklevel=2,
        )
    marks = None if whole.confidential is None else whole.confidential[stays]
    return regrouped(whole, triples[stays], triples[apart == VALID], triples[apart == TEST], marks)


def _of_persons(graph: Graph, ratio: Sequence[float], seed: int) -> Ids:
    """The split of each triple [m]. Triples about nobody and marked triples stay in train.

    For each other triple, a digest of its names decides. One triple of every person stays in train. So the
    split of a person's triples does not depend on what is said about others.
    """
    owner = belongs(graph, graph.train)
    places = np.flatnonzero(owner != NOBODY)
    at = digests(graph, places, str(seed).encode()).view(np.uint64) / 2.0**64
    valid, test = np.cumsum(ratio[1:]) / sum(ratio)
    order = np.lexsort((at, owner[places]))
    last = np.append(np.diff(owner[places][order]) != 0, True)[: len(order)]  # the largest of every person
    at[order[last & (owner[places][order] >= 0)]] = 1.0
    if graph.confidential is not None:
        at[graph.confidential[places]] = 1.0
    found = np.full(len(owner), TRAIN, np.int64)
    found[places] = np.where(at < valid, VALID, np.where(at < test, TEST, TRAIN))
    return found


def _marked_alike(graph: Graph) -> Graph:
    """All triples in train; those of valid and test, which cannot have marks, by their relations.

    Trained on in the open, they would tell what the marks are to hide.
    """
    whole, train = merged(graph), graph.train
    if graph.confidential is None or not graph.confidential.any():
        return whole
    stated = ~graph.confidential & (belongs(graph, train) == NOBODY)
    marks = ~np.isin(whole.train[:, 1], train[stated, 1])
    marks[: len(train)] = graph.confidential
    return replace(whole, confidential=marks)


def spare(triples: Ids, wanted: int, random: np.random.Generator) -> Ids:
    """Up to `wanted` positions in `triples` `[m, 3]`, in random order, that no entity or relation needs.

    Triples are shuffled, and the first that an entity or relation stands in is kept: all others are
    spare. When these are too few, kept triples whose entities and relation all stand in
    another kept one are given up in turn; after that, no further one can be.
    """
    order = random.permutation(len(triples))
    shuffled = triples[order]
    kept = np.zeros(len(triples), np.bool_)
    for columns in ([0, 2], [1]):
        ids = shuffled[:, columns].ravel()
        first = first_positions(ids, ids.max(initial=-1) + 1)
        kept[first[first >= 0] // len(columns)] = True
    free = np.flatnonzero(~kept)
    if len(free) < wanted:
        free = np.concatenate((free, _redundant(shuffled, np.flatnonzero(kept)[::-1], wanted - len(free))))
    return order[free[:wanted]]


def _redundant(triples: Ids, candidates: Ids, wanted: int) -> Ids:
    """Up to `wanted` of `candidates` (all that is kept) that can go, one after the other."""
    entities = np.bincount(triples[candidates][:, [0, 2]].ravel()).tolist()
    relations = np.bincount(triples[candidates][:, 1]).tolist()
    gone: list[int] = []
    for i, (head, relation, tail) in zip(candidates.tolist(), triples[candidates].tolist(), strict=True):
        if len(gone) == wanted:
            break
        entities[head] -= 1
        entities[tail] -= 1
        relations[relation] -= 1
        if entities[head] and entities[tail] and relations[relation]:
            gone.append(i)
        else:
            entities[head] += 1
            entities[tail] += 1
            relations[relation] += 1
    return np.array(gone, np.int64)


def _checked(ratio: Sequence[float]) -> tuple[float, float, float]:
    if len(ratio) != 3 or not all(math.isfinite(part) and part >= 0 for part in ratio) or not ratio[0] > 0:
        shown = ":".join(f"{part:g}" for part in ratio)
        raise ConfigError(f"ratio: expected train:valid:test as in 8:1:1, train above 0, got {shown}")
    return ratio[0], ratio[1], ratio[2]
