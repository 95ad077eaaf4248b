"""Prediction by name: the likeliest head, relation or tail, the likeliest missing triples, neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge.errors import ConfigError, DataError, near
from fedkge.evaluation.checks import check_tables, diverged
from fedkge.evaluation.filter import Known
from fedkge.graphs.graph import Axis, Graph, Ids, Mask, Split
from fedkge.graphs.persons import NOBODY, about_nobody, belongs
from fedkge.models import Side, Tables

COLUMNS = ("head", "relation", "tail")
AT_ONCE = 1 << 22  #: scores held at a time


@dataclass(frozen=True, slots=True)
class Prediction:
    """A completed triple; higher scores are likelier, and only comparable within one model."""

    head: str
    relation: str
    tail: str
    score: float
    known: bool  #: whether the graph already states it


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An entity whose vector points where another's does."""

    entity: str
    similarity: float  #: cosine, from -1 to 1


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
    return Predictor(tables, graph, openly).ask((head, relation, tail), top, exclude_known)


class Predictor:
    """Tables and what their site knows, to be asked many things; `openly` as in `predict`."""

    def __init__(self, tables: Tables, graph: Graph, openly: bool = False) -> None:
        check_tables(tables, graph.n_entities, graph.n_relations)
        self.tables, self.graph = tables, unrestricted(graph) if openly else graph
        self.names = (graph.entities, graph.relations, graph.entities)
        nobody = np.zeros(graph.n_entities, np.bool_)
        self.hidden: Mask = graph.persons if openly and graph.persons is not None else nobody

    @cached_property
    def known(self) -> Known:
        return Known.from_graph(self.graph)

    def ids(self, given: tuple[str | None, str | None, str | None]) -> list[int]:
        """The ids of names, -1 for what is asked for; a name that is not there is an error with near ones."""
        return [-1 if name is None else self._id(column, name) for column, name in enumerate(given)]

    def ask(
        self, given: tuple[str | None, str | None, str | None], top: int = 10, exclude_known: bool = True
    ) -> list[Prediction]:
        """The likeliest names for the one of head, relation and tail that is None."""
        missing = [column for column, name in enumerate(given) if name is None]
        if len(missing) != 1:
            named = ", ".join(name for name, value in zip(COLUMNS, given, strict=True) if value is not None)
            raise ConfigError(f"predict: expected two of head, relation and tail, got {named or 'none'}")
        _check_top(top)
        ids, asked = self.ids(given), missing[0]
        scores = _scores(self.tables, ids, asked, len(self.names[asked]))
        known = self._answers(ids, asked)
        hidden = known[:0] if COLUMNS[asked] == "relation" else np.flatnonzero(self.hidden)
        best = _best(scores, np.concatenate((known if exclude_known else known[:0], hidden)), top)
        stated = np.isin(best, known)
        found = []
        for one, fact in zip(best, stated, strict=True):
            h, r, t = (self.names[i][int(one) if i == asked else ids[i]] for i in range(3))
            found.append(Prediction(h, r, t, float(scores[one]), bool(fact)))
        return found

    def missing(self, relation: str | None = None, top: int = 10) -> list[Prediction]:
        """The `top` likeliest triples that the graph does not state, of one relation or of all.

        A thing is related to itself only by relations of which the graph has such a triple.
        """
        _check_top(top)
        relations = range(self.graph.n_relations) if relation is None else [self._id(1, relation)]
        best, triples = np.empty(0, np.float32), np.empty((0, 3), np.int64)
        for scores, some in self._unstated(relations, top):
            best, triples = np.concatenate((best, scores)), np.concatenate((triples, some))
            order = np.lexsort((triples[:, 2], triples[:, 0], triples[:, 1], -best))[:top]
            best, triples = best[order], triples[order]
        entities, names = self.graph.entities, self.graph.relations
        return [
            Prediction(entities[h], names[r], entities[t], float(score), False)
            for (h, r, t), score in zip(triples.tolist(), best, strict=True)
        ]

    def _unstated(self, relations: range | list[int], top: int) -> Iterator[tuple[NDArray[np.floating], Ids]]:
        """The likeliest of every relation and some heads at a time: scores `[k]`, triples `[k, 3]`."""
        n, train = self.graph.n_entities, self.graph.all()
        looped = set(train[train[:, 0] == train[:, 2], 1].tolist())
        heads = np.flatnonzero(~self.hidden)
        for r in relations:
            for some in np.array_split(heads, max(1, -(-len(heads) * n // AT_ONCE))):
                anchor = torch.from_numpy(some).to(self.tables.device)
                rows = self.tables.all_scores(anchor, torch.full_like(anchor, r), Side.TAIL)
                if not rows.isfinite().all():
                    raise diverged()
                scores = rows.cpu().numpy()
                lists = self.known.tails
                first, last = lists.ranges(self.known.key(some, np.full_like(some, r)))
                for place, (lo, hi) in enumerate(zip(first, last, strict=True)):
                    scores[place, lists.ids[lo:hi]] = -np.inf
                scores[:, self.hidden] = -np.inf
                if r not in looped:
                    scores[np.arange(len(some)), some] = -np.inf
                flat = scores.ravel()
                chosen = np.argpartition(-flat, top - 1)[:top] if len(flat) > top else np.arange(len(flat))
                chosen = chosen[np.isfinite(flat[chosen])]
                h, t = some[chosen // n], chosen % n
                yield flat[chosen], np.stack((h, np.full_like(h, r), t), 1)

    def neighbours(self, entity: str, top: int = 10) -> list[Neighbour]:
        """The `top` entities whose vectors have the largest cosine with this one's, best first."""
        _check_top(top)
        (own, _, _) = self.ids((entity, None, None))
        model = self.tables.model
        vectors = self.tables.entities[:, : model.spatial(Axis.ENTITY) or None].float()
        vectors = torch.nn.functional.normalize(vectors, dim=1)
        cosines = (vectors @ vectors[own]).cpu().numpy()
        best = _best(cosines, np.append(np.flatnonzero(self.hidden), own), top)
        return [Neighbour(self.graph.entities[i], float(cosines[i])) for i in best.tolist()]

    def _id(self, column: int, name: str) -> int:
        names = self.names[column]
        if name not in names:
            shown = (
                names
                if column == 1
                else [own for own, hide in zip(names, self.hidden, strict=True) if not hide]
            )
            raise DataError(f"no {names.axis} is named {name!r}{near(name, list(shown))}")
        found = names.id(name)
        if column != 1 and self.hidden[found]:
            raise ConfigError(f"{COLUMNS[column]}: a person, about whom nothing is said to others")
        return found

    def _answers(self, ids: list[int], asked: int) -> Ids:
        """What the graph already states for the asked-for column."""
        if COLUMNS[asked] == "relation":
            triples = self.graph.all()
            return triples[(triples[:, 0] == ids[0]) & (triples[:, 2] == ids[2]), 1]
        lists = self.known.side(Side(COLUMNS[asked]))
        lo, hi = lists.ranges(self.known.key(np.array([ids[2 - asked]]), np.array([ids[1]])))
        return lists.ids[lo[0] : hi[0]]


def _check_top(top: int) -> None:
    if top < 1:
        raise ConfigError(f"top: expected at least 1, got {top}")


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


def unrestricted(graph: Graph) -> Graph:
    """What is stated in the open: no confidential training triple, and nothing about a person."""
    stays = np.ones(len(graph.train), np.bool_) if graph.confidential is None else ~graph.confidential
    stays &= belongs(graph, graph.train) == NOBODY
    valid, test = (about_nobody(graph, split) for split in (Split.VALID, Split.TEST))
    return replace(graph, train=graph.train[stays], valid=valid, test=test, confidential=None)


def _best(scores: NDArray[np.floating], excluded: Ids, top: int) -> Ids:
    """The ids of the `top` highest scores, best first, equal scores in the order of their ids."""
    left = np.ones(len(scores), np.bool_)
    left[excluded] = False
    ids = np.flatnonzero(left)
    loss = -scores[ids]
    if len(ids) > top:
        ids, loss = ids[loss <= (worst := np.partition(loss, top - 1)[top - 1])], loss[loss <= worst]
    return ids[np.argsort(loss, kind="stable")][:top]
