"""Splits: sizes by ratio, marks, bad ratios; that train knows every name is a property test."""

from __future__ import annotations

import time

import numpy as np
import pytest

from fedkge.errors import ConfigError, DataWarning
from fedkge.graphs.files import graph_from_names, read_graph, write_graph
from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.graphs.split import parse_ratio, split


def dense_graph(entities: int = 30, relations: int = 3) -> Graph:
    pairs = [(a, b) for a in range(entities) for b in range(entities)]
    return graph_from_names([(f"e{a}", f"r{(a + b) % relations}", f"e{b}") for a, b in pairs])


def test_sizes_follow_the_ratio():
    graph = dense_graph()  # 900 triples
    assert [len(part) for part in split(graph, (8, 1, 1), 0).splits().values()] == [720, 90, 90]
    assert [len(part) for part in split(graph, (90, 5, 5), 0).splits().values()] == [810, 45, 45]
    assert [len(part) for part in split(graph, (1, 0, 0), 0).splits().values()] == [900, 0, 0]
    assert [len(part) for part in split(graph, (2, 0, 1), 0).splits().values()] == [600, 0, 300]


def test_a_former_split_is_given_up():
    graph = dense_graph()
    once = split(graph, (1, 1, 1), 0)
    again = split(once, (8, 1, 1), 1)
    assert [len(part) for part in again.splits().values()] == [720, 90, 90]


def test_seeds_differ_and_repeat():
    graph = dense_graph()
    first, same, other = split(graph, seed=0), split(graph, seed=0), split(graph, seed=1)
    np.testing.assert_array_equal(first.test, same.test)
    names = [{tuple(graph.entities[i] for i in row[[0, 2]]) for row in g.test} for g in (first, other)]
    assert names[0] != names[1]


def test_the_result_has_the_ids_of_its_files(tmp_path):
    graph = split(dense_graph(), seed=4)
    write_graph(graph, tmp_path / "g")
    again = read_graph(tmp_path / "g")
    assert again.entities == graph.entities
    for name, part in graph.splits().items():
        np.testing.assert_array_equal(again.split(name), part)


def test_marks_stay_with_what_stays_in_train():
    graph = dense_graph()
    marks = graph.train[:, 1] == 0
    with pytest.warns(DataWarning, match=r"(\d+) of 300 confidential triples were moved") as said:
        divided = split(Graph(graph.entities, graph.relations, graph.train, confidential=marks), seed=2)
    assert str(said[0].message).startswith(f"{300 - int(divided.confidential.sum())} of 300 ")
    secret = divided.relations.id(graph.relations[0])
    np.testing.assert_array_equal(divided.confidential, divided.train[:, 1] == secret)


def test_held_out_triples_are_spread_evenly():
    """Of a graph without bottlenecks, every triple is held out about as often as any other."""
    graph = dense_graph(12, 2)
    counts = np.zeros((12, 12))
    for seed in range(300):
        divided = split(graph, (1, 1, 0), seed)
        rows = [[int(divided.entities[i][1:]) for i in row] for row in divided.valid[:, [0, 2]].tolist()]
        counts[tuple(np.array(rows).T)] += 1
    assert counts.mean() == pytest.approx(150)
    assert counts.std() < 12  # a binomial has 8.7


def test_a_star_cannot_be_split_and_says_so():
    star = graph_from_names([("hub", "r", f"leaf{i}") for i in range(10)])
    with pytest.warns(DataWarning, match="only 0 of 10 triples can be held out .* valid 0 instead of 1"):
        assert len(split(star).train) == 10


def test_as_many_as_possible_are_held_out():
    path = graph_from_names([("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d")])
    for seed in range(5):
        with pytest.warns(DataWarning, match="only 1 of 3"):
            divided = split(path, (1, 1, 1), seed)
        held = divided.all()[len(divided.train) :]
        assert [(divided.entities[h], divided.entities[t]) for h, _, t in held.tolist()] == [("b", "c")]


def test_a_million_triples_take_seconds():
    random = np.random.default_rng(0)
    ids = random.integers(0, [200_000, 100, 200_000], (1_000_000, 3))
    ids[:200_000, 0] = np.arange(200_000)
    graph = Graph(
        Names([f"e{i}" for i in range(200_000)]), Names([f"r{i}" for i in range(100)], Axis.RELATION), ids
    )
    started = time.perf_counter()
    divided = split(graph)
    assert time.perf_counter() - started < 5
    assert [len(part) for part in divided.splits().values()] == [800_000, 100_000, 100_000]


def test_ratios_are_parsed():
    assert parse_ratio("8:1:1") == (8, 1, 1)
    assert parse_ratio("0.9:0.05:0.05") == (0.9, 0.05, 0.05)
    assert parse_ratio("9:1") == (9, 1, 0)


@pytest.mark.parametrize(
    "text", ["", "8", "8:1:1:1", "a:b:c", "0:1:1", "8:-1:1", "8:nan:1", "inf:1:1", "8/1/1"]
)
def test_bad_ratios(text):
    with pytest.raises(ConfigError, match="ratio: expected"):
        parse_ratio(text)
    with pytest.raises(ConfigError, match="ratio: expected"):
        split(dense_graph(), (0, 1, 1))
