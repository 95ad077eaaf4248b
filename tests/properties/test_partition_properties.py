"""Whatever the graph, dealing out and splitting lose nothing, and train knows every name."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedkge.errors import DataError, DataWarning
from fedkge.graphs.files import graph_from_names
from fedkge.graphs.graph import Graph
from fedkge.graphs.marks import forget
from fedkge.graphs.partition import by_relation, by_triple, halves
from fedkge.graphs.split import split

entity = st.integers(0, 8).map("e{}".format)
triple = st.tuples(entity, st.integers(0, 4).map("r{}".format), entity)  # self-loops included
stars = st.integers(1, 12).map(lambda n: [("hub", "r", f"leaf{i}") for i in range(n)])
loops = st.integers(1, 6).map(lambda n: [(f"e{i}", "r", f"e{i}") for i in range(n)])
rows = st.lists(triple, min_size=1, max_size=40, unique=True) | stars | loops
ratios = st.tuples(st.integers(1, 100), st.integers(0, 100), st.integers(0, 100))


def spelled(graph: Graph, triples: np.ndarray | None = None) -> list[tuple[str, str, str]]:
    triples = graph.all() if triples is None else triples
    return [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in triples.tolist()]


def names(triples: list[tuple[str, str, str]]) -> Counter[tuple[str, str]]:
    """How often each entity and relation stands in a triple; a self-loop counts once."""
    return Counter(x for h, r, t in triples for x in {("entity", h), ("relation", r), ("entity", t)})


@given(rows, ratios, st.integers(0, 5))
def test_train_knows_every_name(rows, ratio, seed):
    graph = graph_from_names(rows)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        divided = split(graph, ratio, seed)
    assert sorted(spelled(divided)) == sorted(rows)
    train = names(spelled(divided, divided.train))
    assert train.keys() == names(rows).keys()

    wanted = [round(len(rows) * part / sum(ratio)) for part in ratio[1:]]
    if not caught:
        assert [len(divided.valid), len(divided.test)] == wanted
    else:  # then nothing more could be held out: each triple is the last of some name
        assert len(divided.valid) + len(divided.test) < sum(wanted)
        for row in spelled(divided, divided.train):
            assert min(train[name] for name in names([row])) == 1


@given(rows, st.integers(0, 5))
def test_forgetting_keeps_every_name(rows, seed):
    graph = graph_from_names(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        try:
            chosen = forget({"g": graph}, 0.3, seed)["g"]
        except DataError:  # a share of none, or none to spare
            return
    retained = spelled(graph, chosen.retained.train)
    assert sorted(retained + spelled(graph, chosen.forgotten)) == sorted(rows)
    assert names(retained).keys() == names(rows).keys()


@given(rows, st.integers(1, 5), st.integers(0, 5))
def test_dealing_loses_nothing(rows, sites, seed):
    graph = graph_from_names(rows)
    dealt = [halves(graph, seed)] if len(rows) > 1 else []
    dealt += [by_triple(graph, min(sites, len(rows)), seed)]
    dealt += [by_relation(graph, min(sites, graph.n_relations), seed)]
    for federation in dealt:
        assert sorted(row for part in federation.values() for row in spelled(part)) == sorted(rows)
        for part in federation.values():
            assert part.n_entities == len(np.unique(part.train[:, [0, 2]]))
            assert part.n_relations == len(np.unique(part.train[:, 1]))
    owners = Counter(relation for part in dealt[-1].values() for relation in part.relations)
    assert set(owners.values()) == {1}
