"""Prediction: the likeliest missing head, relation or tail, by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.errors import ConfigError
from fedkge.evaluation.checks import check_tables, diverged
from fedkge.graphs.graph import Graph, Ids
from fedkge.models import Side, Tables

COLUMNS = ("head", "relation", "tail")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A completed triple; higher scores are likelier, and only comparable within one model."""

    head: str
    relation: str
    tail: str
    score: float
    known: bool  #: whether the graph already states it


def predict(
    tables: Tables,
    graph: Graph,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    top: int = 10,
    exclude_known: bool = True,
) -> list[Prediction]:
    """The `top` likeliest names for the one of the three that is None, best first; equal scores by id."""
    given = (head, relation, tail)
    missing = [column for column, name in enumerate(given) if name is None]
    if len(missing) != 1:
        named = ", ".join(name for name, value in zip(COLUMNS, given, strict=True) if value is not None)
        raise ConfigError(f"predict: expected two of head, relation and tail, got {named or 'none'}")
    if top < 1:
        raise ConfigError(f"top: expected at least 1, got {top}")
    check_tables(tables, graph.n_entities, graph.n_relations)
    names = (graph.entities, graph.relations, graph.entities)
    ids = [-1 if name is None else names[i].id(name) for i, name in enumerate(given)]
    asked = missing[0]
    scores = _scores(tables, ids, asked, len(names[asked]))
    known = _answers(graph, ids, asked)
    best = _best(scores, known if exclude_known else known[:0], top)
    stated = np.isin(best, known)
    found = []
    for one, fact in zip(best, stated, strict=True):
        h, r, t = (names[i][int(one) if i == asked else ids[i]] for i in range(3))
        found.append(Prediction(h, r, t, float(scores[one]), bool(fact)))
    return found


def _scores(tables: Tables, ids: list[int], asked: int, n: int) -> NDArray[np.floating]:
    """The scores `[n]` of everything that could stand at the asked-for column."""
    device = tables.device
    if COLUMNS[asked] == "relation":
        triples = torch.tensor(ids, device=device).repeat(n, 1)
        triples[:, asked] = torch.arange(n, device=device)
        scores = tables.score(triples)
    else:
        anchor, relation = ids[2 - asked], ids[1]
        one = torch.tensor([[anchor, relation]], device=device)
        scores = tables.all_scores(one[:, 0], one[:, 1], Side(COLUMNS[asked]))[0]
    if not scores.isfinite().all():
        raise diverged()
    return scores.cpu().numpy()


def _answers(graph: Graph, ids: list[int], asked: int) -> Ids:
    """What the graph already states for the asked-for column."""
    triples = graph.all()
    fits = [triples[:, column] == one for column, one in enumerate(ids) if column != asked]
    return triples[fits[0] & fits[1], asked]


def _best(scores: NDArray[np.floating], excluded: Ids, top: int) -> Ids:
    """The ids of the `top` highest scores, best first, equal scores in the order of their ids."""
    left = np.ones(len(scores), np.bool_)
    left[excluded] = False
    ids = np.flatnonzero(left)
    loss = -scores[ids]
    if len(ids) > top:
        ids, loss = ids[loss <= (worst := np.partition(loss, top - 1)[top - 1])], loss[loss <= worst]
    return ids[np.argsort(loss, kind="stable")][:top]
