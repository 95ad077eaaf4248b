"""Dealing out: every triple goes to one site, by the stated rule, the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest

from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.graphs.files import graph_from_names, read_graph, write_graph
from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.graphs.overview import overview
from fedkge.graphs.partition import by_cluster, by_relation, by_triple, co_occurrence, halves
from fedkge.graphs.subgraph import subgraph

DEALS = {
    "relation": lambda graph, **named: by_relation(graph, 3, 0, **named),
    "cluster": lambda graph, **named: by_cluster(graph, 3, 0, **named),
    "triple": lambda graph, **named: by_triple(graph, 3, 0, **named),
    "half": lambda graph, **named: halves(graph, 0, **named),
}


def random_graph(entities: int, relations: int, triples: int, seed: int = 0) -> Graph:
    random = np.random.default_rng(seed)
    h, r, t = (random.integers(0, n, triples) for n in (entities, relations, entities))
    names = sorted({(f"e{a}", f"r{b}", f"e{c}") for a, b, c in zip(h, r, t, strict=True)})
    cut, last = len(names) * 8 // 10, len(names) * 9 // 10
    order = [names[i] for i in random.permutation(len(names))]
    known = {x for a, _, c in order[:cut] for x in (a, c)}
    held = [row for row in order[cut:] if row[0] in known and row[2] in known]
    return graph_from_names(order[:cut], held[: last - cut], held[last - cut :])


def spelled(graph: Graph, split: str = "") -> list[tuple[str, str, str]]:
    triples = graph.split(split) if split else graph.all()
    return [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in triples.tolist()]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return random_graph(60, 10, 400)


@pytest.mark.parametrize("deal", DEALS.values(), ids=DEALS)
def test_every_triple_goes_to_exactly_one_site(deal, graph):
    dealt = deal(graph)
    assert sorted(row for part in dealt.values() for row in spelled(part)) == sorted(spelled(graph))
    assert all(len(part.valid) == len(part.test) == 0 for part in dealt.values())


@pytest.mark.parametrize("deal", DEALS.values(), ids=DEALS)
def test_kept_splits_stay(deal, graph):
    dealt = deal(graph, keep_split=True)
    for split in ("train", "valid", "test"):
        assert sorted(row for part in dealt.values() for row in spelled(part, split)) == sorted(
            spelled(graph, split)
        )


@pytest.mark.parametrize("deal", DEALS.values(), ids=DEALS)
def test_marks_follow_their_triples(deal, graph):
    marks = np.random.default_rng(1).random(len(graph.train)) < 0.3
    marked = Graph(graph.entities, graph.relations, graph.train, graph.valid, graph.test, marks)
    secret = {row for row, mark in zip(spelled(graph, "train"), marks, strict=True) if mark}
    for keep_split in (False, True):
        for part in deal(marked, keep_split=keep_split).values():
            rows = spelled(part, "train")
            assert {rows[i] for i in np.flatnonzero(part.confidential)} == secret & set(rows)


@pytest.mark.parametrize("deal", DEALS.values(), ids=DEALS)
def test_a_site_has_the_ids_it_would_have_when_read_from_files(deal, graph, tmp_path):
    for site, part in deal(graph).items():
        write_graph(part, tmp_path / site)
        again = read_graph(tmp_path / site)
        assert again.entities == part.entities
        assert again.relations == part.relations
        np.testing.assert_array_equal(again.train, part.train)


def test_relations_are_dealt_evenly_and_the_last_site_takes_the_rest(graph):
    assert [part.n_relations for part in by_relation(graph, 3, 0).values()] == [3, 3, 4]
    assert [part.n_relations for part in by_relation(graph, 4, 5).values()] == [2, 2, 2, 4]
    assert overview(by_relation(graph, 4, 5)).mean_relation_overlap == 0


def test_another_seed_deals_otherwise(graph):
    for deal in (by_relation, by_triple):
        assert spelled(deal(graph, 3, 0)["0"]) != spelled(deal(graph, 3, 1)["0"])
    assert spelled(halves(graph, 0)["A"]) != spelled(halves(graph, 1)["A"])


def test_triples_are_dealt_evenly(graph):
    sizes = [len(part.train) for part in by_triple(graph, 7, 0).values()]
    assert max(sizes) - min(sizes) <= 1


def test_halves_have_the_same_size_and_every_relation_in_common(graph):
    a, b = halves(graph, 3).values()
    assert abs(len(a.train) - len(b.train)) <= 1
    for name in graph.relations:
        count = [int((half.train[:, 1] == half.relations.id(name)).sum()) for half in (a, b)]
        assert abs(count[0] - count[1]) <= 1


def slow_co_occurrence(graph: Graph) -> np.ndarray:
    """FedLU, Algorithm 2, lines 3 to 10, as written."""
    relations_of: dict[int, set[int]] = {e: set() for e in range(graph.n_entities)}
    for head, relation, tail in graph.all().tolist():
        relations_of[head].add(relation)
        relations_of[tail].add(relation)
    together = np.zeros((graph.n_relations, graph.n_relations), int)
    for relations in relations_of.values():
        for a, b in combinations(sorted(relations), 2):
            together[a, b] += 1
            together[b, a] += 1
    return together


@pytest.mark.parametrize("seed", range(3))
def test_co_occurrence_equals_the_loop(seed):
    graph = random_graph(12, 6, 60, seed)
    np.testing.assert_array_equal(co_occurrence(graph).toarray(), slow_co_occurrence(graph))


def test_clusters_find_groups_of_relations_that_share_entities():
    rows = []
    for group in range(3):
        random = np.random.default_rng(group)
        for _ in range(150):
            a, b = random.integers(0, 20, 2)
            rows.append((f"g{group}e{a}", f"g{group}r{random.integers(0, 4)}", f"g{group}e{b}"))
    rows = sorted(set(rows))
    rows += [("g0e1", "g0r0", "g1e1"), ("g1e2", "g1r0", "g2e2")]  # weak links
    order = np.random.default_rng(9).permutation(len(rows))
    dealt = by_cluster(graph_from_names([rows[i] for i in order]), 3, 0)
    assert sorted(sorted(part.relations) for part in dealt.values()) == [
        [f"g{group}r{i}" for i in range(4)] for group in range(3)
    ]


@pytest.mark.parametrize("sites", [1, 10])
def test_clusters_at_the_ends(graph, sites):
    dealt = by_cluster(graph, sites, 0)
    assert [part.n_relations for part in dealt.values()] == [10 // sites] * sites


def test_clusters_of_relations_without_a_link_are_called_arbitrary():
    graph = graph_from_names([(f"a{i}", f"r{i}", f"b{i}") for i in range(5)])
    with pytest.warns(DataWarning, match="5 groups without an entity in common"):
        by_cluster(graph, 2, 0)


SCRIPT = """
import sys
from fedkge.graphs import partition
from fedkge.graphs.files import graph_from_names
from fedkge.graphs.marks import forget, mark_share
from fedkge.graphs.split import split
graph = graph_from_names({rows!r})
parts = [*partition.by_relation(graph, 3, 7).values(), *partition.by_cluster(graph, 3, 7).values(),
         *partition.by_triple(graph, 3, 7).values(), *partition.halves(graph, 7).values(),
         split(graph, seed=7), mark_share({{"x": graph}}, 0.5, 7)["x"],
         forget({{"x": graph}}, 0.1, 7)["x"].retained]
for part in parts:
    print(list(part.entities), list(part.relations), [s.tolist() for s in part.splits().values()],
          None if part.confidential is None else part.confidential.tolist())
"""


def test_other_processes_deal_the_same():
    rows = spelled(random_graph(40, 8, 200))
    script = SCRIPT.format(rows=rows)
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop()) > 1000


def test_given_names_are_used(graph):
    assert list(by_triple(graph, 2, 0, names=["north", "south"])) == ["north", "south"]
    assert list(by_triple(graph, 2, 0)) == ["0", "1"]
    assert list(halves(graph, 0)) == ["A", "B"]


@pytest.mark.parametrize(
    ("sites", "names", "message"),
    [
        (0, None, "sites: expected at least 1, got 0"),
        (11, None, "sites: 11 sites for a graph of 10 relations; take at most 10"),
        (2, ["a"], "names: 1 names for 2 sites"),
        (2, ["a", "a"], "two sites have the same name"),
    ],
)
@pytest.mark.parametrize("deal", [by_relation, by_cluster])
def test_bad_arguments(deal, graph, sites, names, message):
    with pytest.raises(ConfigError, match=message):
        deal(graph, sites, 0, names=names)


def test_more_sites_than_triples():
    with pytest.raises(ConfigError, match="3 sites for a graph of 2 triples"):
        by_triple(graph_from_names([("a", "r", "b"), ("b", "r", "a")]), 3, 0)
    with pytest.raises(ConfigError, match="2 sites for a graph of 1 triples"):
        halves(graph_from_names([("a", "r", "b")]), 0)


def test_a_site_without_training_triples_is_an_error():
    with pytest.warns(DataWarning, match="never seen"):
        graph = graph_from_names([("a", "r", "b"), ("b", "s", "a")], test=[("a", "only-in-test", "b")])
    with pytest.raises(DataError, match="no training triple among its 1"):
        by_relation(graph, 3, 0, keep_split=True)


def test_a_subgraph_has_only_what_occurs():
    graph = graph_from_names([("a", "r", "b"), ("c", "s", "d"), ("d", "r", "e")], [("a", "s", "e")])
    part = subgraph(graph, np.array([False, True, True]), np.array([0]), np.array([], np.int64))
    assert list(part.entities) == ["c", "d", "e", "a"]
    assert list(part.relations) == ["s", "r"]
    assert part.relations.axis is Axis.RELATION
    assert spelled(part) == [("c", "s", "d"), ("d", "r", "e"), ("a", "s", "e")]


def test_overview_by_hand():
    federation = {
        "x": graph_from_names([("a", "r", "b"), ("b", "r", "c")], test=[("a", "r", "c")]),
        "y": graph_from_names([("b", "s", "c"), ("c", "s", "d")]),
        "z": graph_from_names([("d", "r", "b"), ("e", "t", "d")]),
    }
    found = overview(federation)
    assert (found.entities, found.relations) == (5, 3)
    assert (found.shared_by_two, found.shared_by_all) == (3, 1)
    assert found.entity_overlap.tolist() == [[3, 2, 1], [2, 3, 2], [1, 2, 3]]
    assert found.relation_overlap.tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 2]]
    assert found.mean_entity_overlap == pytest.approx(5 / 3)
    x = found.sites[0]
    assert (x.site, x.entities, x.relations, x.train, x.valid, x.test) == ("x", 3, 1, 2, 0, 1)
    assert (x.density, x.mean_degree, x.confidential) == (3 / 9, 2.0, 0)


def test_one_site_has_nothing_in_common():
    found = overview({"x": Graph(Names(["a"]), Names(["r"]), np.array([[0, 0, 0]]))})
    assert (found.shared_by_two, found.shared_by_all, found.mean_entity_overlap) == (0, 0, 0.0)
