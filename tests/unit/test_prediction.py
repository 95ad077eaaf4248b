"""Prediction by name: against scoring everything and sorting."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedkge.errors import ConfigError, DataError
from fedkge.evaluation import predict
from fedkge.graphs.graph import Graph, Names
from fedkge.models import MODELS, Tables


def make(model: str = "transe") -> tuple[Tables, Graph]:
    rng = np.random.default_rng(0)
    triples = rng.permutation(np.unique(rng.integers(0, [9, 3, 9], (60, 3)), axis=0))
    names = Names([f"city{i}" for i in range(9)]), Names([f"road{i}" for i in range(3)], "relation")  # type: ignore[arg-type]
    graph = Graph(*names, triples[20:], triples[:10], triples[10:20])
    return Tables.create(MODELS[model](dim=4), torch.arange(9), torch.arange(3), 0), graph


@pytest.mark.parametrize("model", ["transe", "complex", "transr"])
@pytest.mark.parametrize("asked", [0, 1, 2])
@pytest.mark.parametrize("exclude", [True, False])
def test_predictions_are_the_best_of_all_triples(model: str, asked: int, exclude: bool) -> None:
    tables, graph = make(model)
    facts = set(map(tuple, graph.all().tolist()))
    names = (graph.entities, graph.relations, graph.entities)
    fixed = [3, 1, 4]
    every = [[*fixed[:asked], i, *fixed[asked + 1 :]] for i in range(len(names[asked]))]
    scores = tables.score(torch.tensor(every)).tolist()
    expected = [
        (names[asked][triple[asked]], score, tuple(triple) in facts)
        for score, triple in sorted(zip(scores, every, strict=True), key=lambda pair: -pair[0])
        if not (exclude and tuple(triple) in facts)
    ]
    column = ("head", "relation", "tail")[asked]
    given = {c: names[i][fixed[i]] for i, c in enumerate(("head", "relation", "tail")) if i != asked}
    found = predict(tables, graph, **given, top=4, exclude_known=exclude)  # type: ignore[arg-type]
    assert [getattr(p, column) for p in found] == [name for name, _, _ in expected[:4]]
    assert [p.score for p in found] == pytest.approx([score for _, score, _ in expected[:4]], rel=1e-5)
    assert [p.known for p in found] == [fact for _, _, fact in expected[:4]]
    assert all(getattr(p, c) == name for p in found for c, name in given.items())


@pytest.mark.parametrize("top", [1, 3, 8, 50])
def test_equal_scores_come_in_the_order_of_ids(top: int) -> None:
    tables, graph = make()
    tables.entities.zero_()
    found = predict(tables, graph, head="city0", relation="road0", top=top, exclude_known=False)
    assert [p.tail for p in found] == [f"city{i}" for i in range(9)][:top]


def test_unknown_names_get_a_suggestion() -> None:
    tables, graph = make()
    with pytest.raises(DataError, match="no entity is named 'citi3'; did you mean 'city3'"):
        predict(tables, graph, head="citi3", relation="road0")
    with pytest.raises(DataError, match="no relation is named 'roads0'; did you mean 'road0'"):
        predict(tables, graph, head="city3", relation="roads0")


@pytest.mark.parametrize(
    "given", [{}, {"head": "city0"}, dict.fromkeys(("head", "tail", "relation"), "city0")]
)
def test_exactly_one_is_asked_for(given: dict[str, str]) -> None:
    tables, graph = make()
    with pytest.raises(ConfigError, match="expected two of head, relation and tail"):
        predict(tables, graph, **given)  # type: ignore[arg-type]


def test_bad_tables_are_errors() -> None:
    tables, graph = make()
    with pytest.raises(ConfigError, match="top: expected at least 1"):
        predict(tables, graph, head="city0", relation="road0", top=0)
    fewer = Tables(tables.model, tables.entities[:5], tables.relations)
    with pytest.raises(DataError, match="tables of 5 entities and 3 relations, a graph of 9 and 3"):
        predict(fewer, graph, head="city0", relation="road0")
    tables.entities[2] = float("nan")
    with pytest.raises(DataError, match="not finite"):
        predict(tables, graph, head="city0", relation="road0")
