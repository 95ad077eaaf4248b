"""Our ranks are PyKEEN's: same scores in, same metrics out, for every tie rule and side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.evaluation import Known, metrics, rank
from fedkge.exports import to_pykeen
from fedkge.graphs.graph import Graph, Names
from fedkge.models import MODELS, Side, Tables

pytest.importorskip("pykeen")
pytestmark = pytest.mark.filterwarnings("ignore")

METRICS = {
    "mrr": "inverse_harmonic_mean_rank",
    "mr": "arithmetic_mean_rank",
    **{f"hits@{k}": f"hits_at_{k}" for k in (1, 3, 5, 10)},
}


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    n, m = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    triple = st.tuples(st.integers(0, n - 1), st.integers(0, m - 1), st.integers(0, n - 1))
    triples = draw(st.lists(triple, min_size=2, max_size=30, unique=True)) if n * n * m > 1 else [(0, 0, 0)]
    cut = draw(st.integers(1, len(triples)))
    array = np.array(triples, np.int64)
    test = array[cut:] if cut < len(array) else array[:1]
    return Graph(Names(map(str, range(n))), Names(map(str, range(m))), array[:cut], test=test)


def evaluated(model: Any, graph: Graph) -> Any:
    from pykeen.evaluation import RankBasedEvaluator

    test, train = torch.from_numpy(graph.test), torch.from_numpy(graph.train)
    return RankBasedEvaluator().evaluate(
        model, test, additional_filter_triples=[train], batch_size=4, use_tqdm=False
    )


def assert_same(tables: Tables, graph: Graph, model: Any) -> None:
    theirs = evaluated(model, graph)
    ranks = rank(tables, graph.test, Known.from_graph(graph))
    for ties in ("optimistic", "realistic", "pessimistic"):
        for name, side in (("head", Side.HEAD), ("tail", Side.TAIL), ("both", None)):
            ours = metrics(ranks, ties, side)
            for metric, key in METRICS.items():
                expected = theirs.get_metric(f"{name}.{ties}.{key}")
                assert ours[metric] == pytest.approx(expected, rel=1e-5), (ties, name, metric)


def scoring_as(tables: Tables, graph: Graph) -> Any:
    """A PyKEEN model whose scores are those of `tables`, to the last bit."""
    model = to_pykeen(tables, graph)
    model.score_t = lambda hr, **_: tables.all_scores(hr[:, 0], hr[:, 1], Side.TAIL)
    model.score_h = lambda rt, **_: tables.all_scores(rt[:, 1], rt[:, 0], Side.HEAD)
    return model


@settings(max_examples=20, deadline=None)
@given(
    graph=graphs(), model=st.sampled_from(["transe", "distmult", "rotate", "transh"]), seed=st.integers(0, 99)
)
def test_random_tables(graph: Graph, model: str, seed: int) -> None:
    keys = torch.arange(graph.n_entities), torch.arange(graph.n_relations)
    tables = Tables.create(MODELS[model](dim=4), *keys, seed)
    assert_same(tables, graph, scoring_as(tables, graph))


@settings(max_examples=20, deadline=None)
@given(
    graph=graphs(),
    model=st.sampled_from(["transe", "distmult", "complex", "rescal"]),
    seed=st.integers(0, 99),
)
def test_whole_numbers_tie_often_and_exactly(graph: Graph, model: str, seed: int) -> None:
    """Scores of whole numbers have no rounding, so PyKEEN's own models give the same ones."""
    rng = np.random.default_rng(seed)
    chosen = MODELS[model](dim=2)
    keys = torch.arange(graph.n_entities), torch.arange(graph.n_relations)
    tables = Tables.create(chosen, *keys, seed)
    for table in (tables.entities, tables.relations):
        table.copy_(torch.from_numpy(rng.integers(-1, 2, table.shape).astype(np.float32)))
    assert_same(tables, graph, to_pykeen(tables, graph))
