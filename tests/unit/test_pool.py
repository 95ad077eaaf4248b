"""Pooling: equal names are one thing, and facts stand once."""

from __future__ import annotations

import warnings

import numpy as np

from fedkge.graphs.files import graph_from_names
from fedkge.graphs.graph import Graph
from fedkge.graphs.pool import pool


def named(graph: Graph, split: str) -> set[tuple[str, str, str]]:
    return {
        (graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.split(split).tolist()
    }


def test_names_decide_and_every_site_finds_its_own() -> None:
    a = graph_from_names([("x", "r", "y"), ("y", "r", "z")], [("x", "r", "z")])
    b = graph_from_names([("z", "s", "x"), ("y", "r", "z")], [], [("x", "s", "z")])
    pooled = pool({"a": a, "b": b})
    assert named(pooled.graph, "train") == named(a, "train") | named(b, "train")
    assert len(pooled.graph.train) == 3
    for site, graph in {"a": a, "b": b}.items():
        assert [pooled.graph.entities[i] for i in pooled.entities[site]] == list(graph.entities)
        assert [pooled.graph.relations[i] for i in pooled.relations[site]] == list(graph.relations)


def test_what_another_site_is_measured_by_is_trained_on_as_it_is_by_its_site() -> None:
    """`data.drop_leaks` decides, for every method alike."""
    a = graph_from_names([("x", "r", "y"), ("y", "r", "x")])
    b = graph_from_names([("x", "r", "z"), ("y", "r", "z")], [], [("x", "r", "y")])
    pooled = pool({"a": a, "b": b})
    assert ("x", "r", "y") in named(pooled.graph, "train")
    assert ("x", "r", "y") in named(pooled.graph, "test")


def test_one_site_pooled_is_itself() -> None:
    graph = graph_from_names([("x", "r", "y"), ("y", "r", "z")], [("x", "r", "z")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pooled = pool({"only": graph})
    assert np.array_equal(pooled.graph.train, graph.train)
    assert np.array_equal(pooled.graph.valid, graph.valid)
