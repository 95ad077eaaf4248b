"""Prediction: the likeliest missing head, relation or tail, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.errors import ConfigError
from fedkge.evaluation.checks import check_tables, diverged
from fedkge.graphs.graph import Graph, Ids, Split
from fedkge.graphs.persons import NOBODY, about_nobody, belongs
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
    openly: bool = False,
) -> list[Prediction]:
    """The `top` likeliest names for the one of the three that is None, best first; equal scores by id.

    `openly`: as somebody may see them who knows unrestricted triples only. Confidential triples are not
    known, and no person is an answer or can be asked about.
    """
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
    known = _answers(_opened(graph) if openly else graph, ids, asked)
    hidden = _hidden(graph, ids, asked) if openly else known[:0]
    best = _best(scores, np.concatenate((known if exclude_known else known[:0], hidden)), top)
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


def _opened(graph: Graph) -> Graph:
    """What is stated in the open: no confidential training triple, and nothing about a person."""
    stays = np.ones(len(graph.train), np.bool_) if graph.confidential is None else ~graph.confidential
    stays &= belongs(graph, graph.train) == NOBODY
    valid, test = (about_nobody(graph, split) for split in (Split.VALID, Split.TEST))
    return replace(graph, train=graph.train[stays], valid=valid, test=test, confidential=None)


def _hidden(graph: Graph, ids: list[int], asked: int) -> Ids:
    """The persons, where an entity is asked for; an error where one is asked about."""
    if graph.persons is None:
        return np.empty(0, np.int64)
    for column in (0, 2):
        if column != asked and graph.persons[ids[column]]:
            raise ConfigError(f"{COLUMNS[column]}: a person, about whom nothing is said to others")
    return np.empty(0, np.int64) if COLUMNS[asked] == "relation" else np.flatnonzero(graph.persons)


def _best(scores: NDArray[np.floating], excluded: Ids, top: int) -> Ids:
    """The ids of the `top` highest scores, best first, equal scores in the order of their ids."""
    left = np.ones(len(scores), np.bool_)
    left[excluded] = False
    ids = np.flatnonzero(left)
    loss = -scores[ids]
    if len(ids) > top:
        ids, loss = ids[loss <= (worst := np.partition(loss, top - 1)[top - 1])], loss[loss <= worst]
    return ids[np.argsort(loss, kind="stable")][:top]
