"""Triple classification: exact thresholds, exact AUC, corruptions that are never facts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedkge.errors import DataError, DataWarning
from fedkge.evaluation import Known, classify
from fedkge.evaluation.classification import corrupt, fit_thresholds, roc_auc
from fedkge.graphs.graph import Graph, Names
from fedkge.models import MODELS, Tables

labelled = st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 3)), max_size=25)


def right(scores: np.ndarray, labels: np.ndarray, threshold: float) -> int:
    return int(((scores >= threshold) == labels).sum())


@given(labelled)
def test_thresholds_are_as_good_as_any(rows: list[tuple[int, bool, int]]) -> None:
    scores, labels, group = (np.array(x) for x in zip(*rows, strict=True)) if rows else np.empty((3, 0))
    scores, labels, group = scores.astype(float), labels.astype(bool), group.astype(np.int64)
    thresholds = fit_thresholds(scores, labels, group, 5)
    for g in range(5):
        mine = group == g
        if not mine.any():
            assert np.isnan(thresholds[g])
            continue
        s, y = scores[mine], labels[mine]
        cuts = [*s, s.max() + 1]  # every way to accept the highest ones
        assert right(s, y, thresholds[g]) == max(right(s, y, cut) for cut in cuts)


def test_a_threshold_lies_half_way_but_never_on_the_next_score() -> None:
    one = np.zeros(2, np.int64)
    labels = np.array([True, False])
    assert fit_thresholds(np.array([3.0, 1.0]), labels, one, 1).tolist() == [2.0]
    neighbours = np.array([np.nextafter(1, 2), 1.0])
    assert fit_thresholds(neighbours, labels, one, 1).tolist() == [neighbours[0]]


@given(st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=40))
def test_auc_is_that_of_scikit_learn(rows: list[tuple[int, bool]]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    scores, labels = np.array([r[0] for r in rows], float), np.array([r[1] for r in rows])
    ours = roc_auc(scores, labels)
    if labels.all() or not labels.any():
        assert np.isnan(ours)
    else:
        assert ours == pytest.approx(sklearn.roc_auc_score(labels, scores))


def random_graph(n: int = 8, m: int = 2, size: int = 60) -> Graph:
    rng = np.random.default_rng(0)
    triples = rng.permutation(np.unique(rng.integers(0, [n, m, n], (size, 3)), axis=0))
    names = Names([f"e{i}" for i in range(n)]), Names([f"r{i}" for i in range(m)])
    return Graph(*names, triples[20:], triples[:10], triples[10:20])


def test_corruptions_change_one_end_uniformly_and_are_no_facts() -> None:
    graph = random_graph()
    known = Known.from_graph(graph)
    many = np.repeat(graph.test[:1], 20_000, 0)
    corrupted, possible = corrupt(many, known, np.random.default_rng(1))
    assert possible.all()
    assert not known.contains(corrupted).any()
    changed = corrupted != many
    assert (changed.sum(1) == 1).all()
    assert not changed[:, 1].any()
    assert changed[:, 0].mean() == pytest.approx(0.5, abs=0.02)
    for column in (0, 2):
        found = np.unique(corrupted[changed[:, column], column], return_counts=True)[1]
        fixed = [c for c in (0, 1, 2) if c != column]
        facts = graph.all()
        taken = (facts[:, fixed] == many[0, fixed]).all(1).sum()
        assert len(found) == graph.n_entities - taken
        assert found.max() / found.min() < 1.25


def test_where_one_end_has_no_corruption_the_other_is_taken() -> None:
    triples = np.array([[0, 0, 0], [0, 0, 1], [0, 0, 2]])  # every tail of (a, r) is known
    corrupted, possible = corrupt(triples, Known.of(triples, 3, 1), np.random.default_rng(0))
    assert possible.all()
    assert (corrupted[:, 0] > 0).all()
    assert (corrupted[:, 2] == triples[:, 2]).all()


def perfect_tables(graph: Graph) -> Tables:
    """RESCAL rows that score facts with 1 and everything else with 0: entities are unit vectors."""
    n = graph.n_entities
    facts = torch.zeros(graph.n_relations, n, n)
    for h, r, t in graph.all().tolist():
        facts[r, h, t] = 1
    model = MODELS["rescal"](dim=n)
    return Tables(model, torch.eye(n), facts.flatten(1))


def test_a_perfect_model_makes_no_mistake() -> None:
    graph = random_graph()
    result = classify(perfect_tables(graph), graph, seed=0)
    assert (result.accuracy, result.auc, result.count) == (1.0, 1.0, 20)
    assert result.thresholds.tolist() == [0.5, 0.5]
    assert result.without_valid == 0


def test_the_same_seed_judges_the_same_triples() -> None:
    graph = random_graph()
    tables = Tables.create(MODELS["transe"](dim=4), torch.arange(8), torch.arange(2), 0)
    first, again = (classify(tables, graph, seed=5) for _ in range(2))
    assert (first.accuracy, first.auc) == (again.accuracy, again.auc)
    assert len({classify(tables, graph, seed=seed).auc for seed in range(4)}) > 1


def test_relations_without_valid_triples_use_the_overall_threshold() -> None:
    graph = random_graph()
    only = graph.valid[graph.valid[:, 1] == 0]
    partial = Graph(graph.entities, graph.relations, graph.train, only, graph.test)
    result = classify(perfect_tables(graph), partial, seed=0)
    assert result.without_valid == 1
    assert result.thresholds[1] == result.overall


def test_triples_that_cannot_be_corrupted_are_left_out() -> None:
    everything = np.array([(h, 0, t) for h in range(2) for t in range(2)] + [(0, 1, 0), (1, 1, 0)])
    graph = Graph(Names("ab"), Names("rs"), everything[4:], everything[4:], everything)
    tables = Tables.create(MODELS["transe"](dim=4), torch.arange(2), torch.arange(2), 0)
    with pytest.warns(DataWarning, match="4 triples left out"):
        assert classify(tables, graph, seed=0).count == 4


def test_nothing_to_classify_or_scores_that_diverged_are_errors() -> None:
    graph = random_graph()
    tables = Tables.create(MODELS["transe"](dim=4), torch.arange(8), torch.arange(2), 0)
    with pytest.raises(DataError, match="valid at site lab: no triples"):
        classify(tables, Graph(graph.entities, graph.relations, graph.train), seed=0, site="lab")
    tables.entities[:] = float("nan")
    with pytest.raises(DataError, match="not finite"):
        classify(tables, graph, seed=0)
