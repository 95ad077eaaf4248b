"""Known answers and negatives of any small stack, against sets."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedkge.errors import DataWarning
from fedkge.graphs.graph import Graph
from fedkge.models import MODELS, Side
from fedkge.training import Corpus, Trainer
from small_graphs import graph_of, start, triples_of, watch

pytest.importorskip("numba")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    entities, relations = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    ids = st.tuples(st.integers(0, entities - 1), st.integers(0, relations - 1), st.integers(0, entities - 1))
    triples = draw(st.lists(ids, min_size=1, max_size=20, unique=True))
    return graph_of(np.array(triples), entities, relations)


stacks = st.lists(graphs(), min_size=1, max_size=3).map(lambda some: {f"s{i}": g for i, g in enumerate(some)})


def answers_of(graph: Graph, triple: tuple[int, int, int], side: Side) -> list[int]:
    h, r, t = triple
    if side is Side.TAIL:
        return sorted(int(c) for a, b, c in graph.train if (a, b) == (h, r))
    return sorted(int(a) for a, b, c in graph.train if (b, c) == (r, t))


@given(stacks)
def test_answers(sites: dict[str, Graph]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        corpus = Corpus.of(sites, 0)
    full = set()
    for side in Side:
        answers, i = corpus.answers[side], 0
        for graph in sites.values():
            for triple in map(tuple, graph.train.tolist()):
                lo, hi = int(answers.lo[i]), int(answers.hi[i])
                found = [value + j for j, value in enumerate(answers.known[lo:hi].tolist())]
                assert found == answers_of(graph, triple, side)
                if len(found) == graph.n_entities:
                    full.add(side)
                i += 1
    assert len(caught) == len(full)


@settings(max_examples=30)
@given(stacks, st.integers(1, 9), st.integers(0, 3), st.sampled_from(["both", "head", "tail"]))
def test_negatives_are_strangers_of_the_same_site(
    sites: dict[str, Graph], batch_size: int, seed: int, sides: str
) -> None:
    trainer = Trainer(epochs=1, batch_size=batch_size, negatives=5, sides=sides)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        training = start(trainer, MODELS["transe"](dim=1), sites, seed)
    batches = watch(training)
    training.run(0)
    graphs, ends = list(sites.values()), training.corpus.entity_ends.tolist()
    for batch in batches:
        lines = zip(batch.site.tolist(), triples_of(batch).tolist(), batch.index.tolist(), strict=True)
        for site, (h, r, t), (_, *negatives) in lines:
            graph, first = graphs[site], ends[site] - graphs[site].n_entities
            shift = sum(other.n_relations for other in graphs[:site])
            answers = answers_of(graph, (h - first, r - shift, t - first), batch.side)
            free = set(range(graph.n_entities)) - set(answers) or set(range(graph.n_entities))
            assert {x - first for x in negatives} <= free


@given(stacks, st.integers(0, 5), st.integers(0, 5))
def test_an_order_keeps_sites_apart_and_loses_nothing(sites: dict[str, Graph], epoch: int, side: int) -> None:
    assume(sum(len(graph.train) for graph in sites.values()) > 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        corpus = Corpus.of(sites, 0)
    order = corpus.shuffled(torch.tensor(epoch), side)
    assert sorted(order.tolist()) == list(range(len(order)))
    assert corpus.site[order].tolist() == corpus.site.tolist()
