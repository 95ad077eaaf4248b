"""Degrees and clustering coefficients against networkx, against slow loops, and as distributions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.graphs import structure as of
from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.graphs.structure import clustering, degrees, structure

STATEMENTS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 1), st.integers(0, 11)), max_size=60)


def graph(triples: list[tuple[int, int, int]]) -> Graph:
    """Over twelve entities; train, valid and test take turns."""
    parts = [np.array(triples[i::3], np.int64).reshape(-1, 3) for i in range(3)]
    return Graph(Names([f"e{i}" for i in range(12)]), Names(["r", "s"], Axis.RELATION), *parts)


def slow(triples: list[tuple[int, int, int]]) -> list[float]:
    joined = {frozenset((h, t)) for h, _, t in triples if h != t}
    found = []
    for e in range(12):
        around = [n for n in range(12) if frozenset((e, n)) in joined]
        pairs = list(combinations(around, 2))
        found.append(sum(frozenset(pair) in joined for pair in pairs) / len(pairs) if pairs else 0.0)
    return found


@given(STATEMENTS, st.sampled_from([1, 7, 1 << 20]))
def test_clustering_is_the_share_of_neighbours_that_are_neighbours(
    triples: list[tuple[int, int, int]], chunk: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of, "CHUNK", chunk)
        found = clustering(graph(triples))
    assert found is not None
    np.testing.assert_allclose(found, slow(triples))


@given(STATEMENTS)
def test_degrees_count_ends(triples: list[tuple[int, int, int]]) -> None:
    ends = [end for h, _, t in triples for end in (h, t)]
    assert degrees(graph(triples)).tolist() == [ends.count(e) for e in range(12)]


def test_they_are_those_of_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    random = np.random.default_rng(0)
    entities = np.minimum(random.geometric(0.02, (4000, 2)) - 1, 299)  # with hubs
    triples = np.insert(entities, 1, 0, axis=1).astype(np.int64)
    one = Graph(Names([f"e{i}" for i in range(300)]), Names(["r"], Axis.RELATION), triples)
    multiple = networkx.MultiGraph(entities.tolist())
    multiple.add_nodes_from(range(300))
    assert degrees(one).tolist() == [multiple.degree(e) for e in range(300)]
    plain = networkx.Graph(multiple)
    plain.remove_edges_from(list(networkx.selfloop_edges(plain)))
    expected = networkx.clustering(plain)
    found = clustering(one)
    assert found is not None
    np.testing.assert_allclose(found, [expected[e] for e in range(300)])
    assert structure(one).mean_clustering == pytest.approx(networkx.average_clustering(plain))


def test_distributions_count_every_entity_once() -> None:
    square = graph([(0, 0, 1), (1, 0, 2), (2, 1, 0), (2, 0, 3), (3, 0, 3)])
    plain = structure(square).plain()
    assert plain["degrees"] == [[0, 8], [2, 2], [3, 2]]
    assert plain["mean_degree"] == 10 / 12
    assert plain["coefficients"] == [9, *[0] * 5, 1, *[0] * 12, 2]  # 2 has 1/3, 0 and 1 have 1
    assert plain["mean_clustering"] == pytest.approx((1 + 1 + 1 / 3) / 12)


def test_too_many_pairs_are_not_counted_and_none_are_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    triangle = graph([(0, 0, 1), (1, 0, 2), (2, 0, 0)])
    monkeypatch.setattr(of, "MOST", 0)
    assert clustering(triangle) is None
    found = structure(triangle)
    assert (found.coefficients, found.mean_clustering) == (None, None)
    assert found.plain()["degrees"] == [[0, 9], [2, 3]]


def test_an_empty_graph_has_none() -> None:
    empty = Graph(Names([]), Names([], Axis.RELATION), np.empty((0, 3), np.int64))
    found = structure(empty)
    assert (found.degrees.tolist(), found.mean_degree, found.mean_clustering) == ([], 0.0, 0.0)
