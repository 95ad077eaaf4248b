"""Confidential marks, forget sets and pruning."""

from __future__ import annotations

import numpy as np
import pytest

from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.graphs.files import graph_from_names, read_graph
from fedkge.graphs.graph import Graph
from fedkge.graphs.marks import forget, mark_relations, mark_share, mark_triples, read_names
from fedkge.graphs.prune import Pruned, prune


def spelled(graph: Graph, triples: np.ndarray) -> list[tuple[str, str, str]]:
    return [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in triples.tolist()]


def secret(graph: Graph) -> list[tuple[str, str, str]]:
    assert graph.confidential is not None
    return spelled(graph, graph.train[graph.confidential])


@pytest.fixture
def federation() -> dict[str, Graph]:
    return {
        "x": graph_from_names(
            [("a", "cures", "b"), ("a", "knows", "b"), ("b", "knows", "c")], test=[("a", "knows", "c")]
        ),
        "y": graph_from_names([("a", "knows", "b"), ("c", "owns", "a")]),
    }


def test_relations_are_marked_wherever_they_are(federation):
    marked = mark_relations(federation, ["cures", "owns"])
    assert secret(marked["x"]) == [("a", "cures", "b")]
    assert secret(marked["y"]) == [("c", "owns", "a")]
    assert federation["x"].confidential is None


def test_marks_add_up(federation):
    marked = mark_relations(mark_relations(federation, ["cures"]), ["knows"])
    assert len(secret(marked["x"])) == 3


def test_triples_are_marked_wherever_they_are_trained_on(federation, tmp_path):
    (tmp_path / "secret.csv").write_text("a,knows,b\nb,knows,c\n")
    marked = mark_triples(federation, read_graph(tmp_path / "secret.csv"))
    assert secret(marked["x"]) == [("a", "knows", "b"), ("b", "knows", "c")]
    assert secret(marked["y"]) == [("a", "knows", "b")]


def test_a_share_is_marked(federation):
    graph = graph_from_names([(f"e{i}", "r", f"e{i + 1}") for i in range(100)])
    marked = mark_share({"g": graph}, 0.3, 0)["g"]
    assert len(secret(marked)) == 30
    assert secret(marked) != secret(mark_share({"g": graph}, 0.3, 1)["g"])
    assert len(secret(mark_share({"g": graph}, 1, 0)["g"])) == 100


def test_marks_that_match_nothing_are_errors(federation):
    with pytest.raises(DataError, match="no relation is named 'know'; did you mean 'knows'"):
        mark_relations(federation, ["cures", "know"])
    with pytest.raises(DataError, match="nothing to mark"):
        mark_relations(federation, [])
    for row in [("a", "knows", "z"), ("a", "knew", "b"), ("b", "knows", "a"), ("a", "knows", "c")]:
        with pytest.raises(
            DataError, match=r"1 of 2 listed triples are in no site's train; the first is \('"
        ):
            mark_triples(federation, graph_from_names([("a", "knows", "b"), row]))
    with pytest.warns(DataWarning, match="never seen"):
        graph = graph_from_names([("a", "r", "b")], test=[("a", "s", "b")])
    with pytest.raises(DataError, match="'s' has no training triple to mark"):
        mark_relations({"g": graph}, ["s"])


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan")])
def test_shares_out_of_range(federation, share):
    with pytest.raises(ConfigError, match="share: expected above 0 and at most 1"):
        mark_share(federation, share, 0)
    with pytest.raises(ConfigError, match="share: expected above 0 and at most 1"):
        forget(federation, share)


def test_a_share_of_nothing(federation):
    with pytest.raises(DataError, match=r"site x: a share of 0\.01 of 3 training triples is none"):
        mark_share(federation, 0.01, 0)


def test_relation_files(tmp_path):
    path = tmp_path / "relations.txt"
    path.write_text("has part\n\nknows\n")
    assert read_names(path) == ["has part", "knows"]
    path.write_text("\n")
    with pytest.raises(DataError, match=r"relations\.txt: expected a name per line"):
        read_names(path)
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match="not UTF-8 at byte 3"):
        read_names(path)
    with pytest.raises(DataError, match="missing: No such file"):
        read_names(tmp_path / "missing")


def test_a_forget_set_leaves_every_name_in_train():
    random = np.random.default_rng(0)
    rows = {(f"e{a}", f"r{b}", f"e{c}") for a, b, c in random.integers(0, [40, 5, 40], (400, 3))}
    graph = graph_from_names(sorted(rows))
    chosen = forget({"g": graph}, 0.25, 3)["g"]
    assert len(chosen.forgotten) == round(len(graph.train) * 0.25)
    assert chosen.retained.entities is graph.entities  # the ids are those of the trained tables
    both = np.concatenate((chosen.retained.train, chosen.forgotten))
    assert sorted(both.tolist()) == sorted(graph.train.tolist())
    assert len(np.unique(chosen.retained.train[:, [0, 2]])) == graph.n_entities
    assert len(np.unique(chosen.retained.train[:, 1])) == graph.n_relations
    alone = chosen.as_graph()
    assert sorted(spelled(alone, alone.train)) == sorted(spelled(graph, chosen.forgotten))


def test_a_forget_set_keeps_marks_and_other_splits(federation):
    triangle = graph_from_names(
        [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a"), ("a", "r", "c")], [("b", "r", "a")]
    )
    marked = mark_share({"g": triangle}, 1, 0)
    chosen = forget(marked, 0.25)["g"]
    assert chosen.retained.confidential.tolist() == [True] * 3
    assert chosen.as_graph().confidential.tolist() == [True]
    np.testing.assert_array_equal(chosen.retained.valid, triangle.valid)


def test_forget_sets_that_cannot_be():
    star = graph_from_names([("hub", "r", f"leaf{i}") for i in range(10)])
    with pytest.raises(DataError, match="site s: every training triple is the last one"):
        forget({"s": star}, 0.5)
    with pytest.warns(DataWarning, match="site p: 1 triples to forget instead of 2"):
        forget({"p": graph_from_names([("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d")])}, 0.6)


def slow_prune(rows: list[tuple[str, str, str]], least: int) -> list[tuple[str, str, str]]:
    while True:
        names = {x for h, _, t in rows for x in (h, t)}
        sparse = {x for x in names if sum(x in (h, t) for h, _, t in rows) < least}
        if not sparse:
            return rows
        rows = [row for row in rows if row[0] not in sparse and row[2] not in sparse]


@pytest.mark.parametrize("least", [1, 2, 3, 4])
def test_pruning_equals_the_loop(least):
    random = np.random.default_rng(least)
    rows = sorted({(f"e{a}", f"r{b}", f"e{c}") for a, b, c in random.integers(0, [30, 5, 30], (110, 3))})
    graph = graph_from_names(rows)
    expected = slow_prune(rows, least)
    smaller, gone = prune(graph, least)
    assert spelled(smaller, smaller.train) == expected
    assert gone.triples == len(rows) - len(expected)
    assert gone.entities == graph.n_entities - smaller.n_entities


def test_pruning_repeats_and_counts_all_splits():
    graph = graph_from_names(
        [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a"), ("c", "s", "d"), ("d", "s", "e")],
        [("a", "r", "c")],
    )
    smaller, gone = prune(graph, 2)
    assert list(smaller.entities) == ["a", "b", "c"]
    assert len(smaller.valid) == 1
    assert gone == Pruned(entities=2, relations=1, triples=2, unseen=0, passes=2)


def test_pruning_too_hard():
    graph = graph_from_names([("a", "r", "b"), ("a", "r", "a")])
    with pytest.raises(DataError, match="min_degree 3 leaves nothing"):
        prune(graph, 3)
    with pytest.raises(ConfigError, match="min_degree: expected at least 1"):
        prune(graph, 0)
    assert prune(graph, 1)[1] == Pruned(0, 0, 0, 0, 0)


def test_pruning_leaves_no_name_that_train_lacks():
    graph = graph_from_names(
        [("a", "r", "b"), ("b", "r", "a"), ("c", "s", "lone")],
        [("a", "s", "b"), ("b", "r", "c")],  # train loses s and c with "lone"
        [("c", "r", "a"), ("a", "r", "a")],
    )
    with pytest.warns(DataWarning, match="3 valid or test triples dropped"):
        smaller, gone = prune(graph, 2)
    assert (list(smaller.entities), list(smaller.relations)) == (["a", "b"], ["r"])
    assert (len(smaller.train), len(smaller.valid), len(smaller.test)) == (2, 0, 1)
    assert (gone.triples, gone.unseen) == (4, 3)
