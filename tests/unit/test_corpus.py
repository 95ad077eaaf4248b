"""What an epoch holds: every triple once a side, in fresh orders, with fresh and honest negatives."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedkge.config import build
from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.graphs.graph import Graph
from fedkge.models import MODELS, Side
from fedkge.training import Batch, Corpus, Trainer
from fedkge.training.trainer import MOST
from small_graphs import graph_of, random_graph, start, triples_of, watch

pytest.importorskip("numba")

SITES = {"a": random_graph(1, 23, 3, 90), "b": random_graph(2, 31, 4, 200), "c": random_graph(3, 9, 2, 31)}
SMALL = Trainer(epochs=1, batch_size=16, negatives=5)


def epoch(trainer: Trainer, sites: dict[str, Graph] = SITES, number: int = 0) -> list[Batch]:
    training = start(trainer, MODELS["transe"](dim=2), sites)
    batches = watch(training)
    training.run(number, 1)
    return batches


def stacked(sites: dict[str, Graph]) -> Counter[tuple[int, ...]]:
    return Counter(map(tuple, Corpus.of(sites, 0).triples.tolist()))


def firsts(sites: dict[str, Graph]) -> list[int]:
    return [0, *np.cumsum([graph.n_entities for graph in sites.values()])[:-1].tolist()]


@pytest.mark.parametrize("sides", ["both", "head", "tail"])
def test_every_triple_once_a_side(sides: str) -> None:
    batches = epoch(replace(SMALL, sides=sides))
    asked = list(Side) if sides == "both" else [Side(sides)]
    assert {batch.side for batch in batches} == set(asked)
    for side in asked:
        seen = Counter(
            tuple(triple) for batch in batches if batch.side is side for triple in triples_of(batch).tolist()
        )
        assert seen == stacked(SITES)


def test_sides_take_turns() -> None:
    sides = [batch.side for batch in epoch(SMALL)]
    assert sides == [Side.HEAD, Side.TAIL] * (len(sides) // 2)


def test_batches_are_full_but_the_last() -> None:
    for number, graph in enumerate(SITES.values()):
        sizes = [int((batch.site == number).sum()) for batch in epoch(replace(SMALL, sides="tail"))]
        mine = sizes[: -(-len(graph.train) // 16)]
        assert mine[:-1] == [16] * (len(mine) - 1)
        assert sum(mine) == len(graph.train)
        assert not any(sizes[len(mine) :])


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_any_batch_size(size: int) -> None:
    sites = {"a": SITES["a"]}
    batches = epoch(replace(SMALL, batch_size=size, sides="head"), sites)
    counts = [len(batch.anchor) for batch in batches]
    m = len(SITES["a"].train)
    assert counts == [size] * (m // size) + [m % size] * (m % size > 0)


def test_orders_differ_between_epochs_and_sides_and_sites() -> None:
    corpus = Corpus.of({"a": SITES["a"], "again": SITES["a"]}, 0)
    m = len(SITES["a"].train)
    orders = [
        tuple((part - shift).tolist())
        for number in range(3)
        for side in range(2)
        for part, shift in zip(corpus.shuffled(torch.tensor(number), side).split(m), (0, m), strict=True)
    ]
    assert len(set(orders)) == len(orders) == 12
    assert all(sorted(order) == list(range(m)) for order in orders)


def test_orders_are_shuffles() -> None:
    """Where a triple lands is not where it stood: positions hardly correlate."""
    corpus = Corpus.of({"big": random_graph(0, 60, 5, 3000)}, 0)
    order = corpus.shuffled(torch.tensor(0), 0).double()
    there = torch.arange(len(order)).double()
    assert torch.corrcoef(torch.stack((order, there)))[0, 1].abs() < 0.07  # four standard deviations


def test_negatives_differ_between_steps_and_epochs() -> None:
    sites = {"a": SITES["a"]}
    drawn = [
        tuple(batch.index[0, 1:].tolist())
        for number in range(2)
        for batch in epoch(replace(SMALL, negatives=40, filtered=False), sites, number)
    ]
    assert len(set(drawn)) == len(drawn) == 2 * 2 * 6
    rows = epoch(replace(SMALL, negatives=40, filtered=False), sites)[0].index[:, 1:]
    assert len(rows.unique(dim=0)) == len(rows)


def test_filtered_negatives_are_never_known() -> None:
    known = set(stacked(SITES))
    seen = 0
    for batch in epoch(replace(SMALL, negatives=30)):
        for (h, r, t), candidates in zip(triples_of(batch).tolist(), batch.index.tolist(), strict=True):
            for x in candidates[1:]:
                assert ((h, r, x) if batch.side is Side.TAIL else (x, r, t)) not in known
                seen += 1
    assert seen > 10_000


def test_unfiltered_negatives_are_uniform_over_the_sites_entities() -> None:
    batches = epoch(replace(SMALL, negatives=300, filtered=False))
    for number, (first, graph) in enumerate(zip(firsts(SITES), SITES.values(), strict=True)):
        drawn = torch.cat([batch.index[batch.site == number, 1:].flatten() for batch in batches]) - first
        counts = torch.bincount(drawn, minlength=graph.n_entities).double()
        assert len(counts) == graph.n_entities
        expected = len(drawn) / graph.n_entities
        chi2 = ((counts - expected) ** 2 / expected).sum()
        assert chi2 < graph.n_entities + 6 * (2 * graph.n_entities) ** 0.5


def test_filtered_negatives_reach_every_entity_that_is_no_answer() -> None:
    graph = graph_of(np.array([[0, 0, 1], [0, 0, 3], [2, 0, 4]]), 5, 1)
    (batch,) = epoch(replace(SMALL, negatives=200, sides="tail"), {"a": graph})
    for (head, *_), candidates in zip(triples_of(batch).tolist(), batch.index.tolist(), strict=True):
        assert set(candidates[1:]) == ({0, 2, 4} if head == 0 else {0, 1, 2, 3})


@pytest.mark.parametrize("negatives", [1, 1000])
def test_numbers_of_negatives(negatives: int) -> None:
    batches = epoch(replace(SMALL, negatives=negatives), {"c": SITES["c"]})
    assert all(batch.index.shape[1] == 1 + negatives for batch in batches)
    assert all(batch.index.max() < 9 for batch in batches)


def test_a_query_that_every_entity_answers() -> None:
    full = [(0, 0, t) for t in range(5)]
    graph = graph_of(np.array([*full, (1, 1, 2)]), 5, 2)
    with pytest.warns(DataWarning, match=r"^5 training triples have no tail that is not an answer"):
        training = start(SMALL, MODELS["transe"](dim=3), {"a": graph})
    batches = watch(training)
    loss = training.run(0, 3)
    assert loss.isfinite().all()
    tails = torch.cat([batch.index[:, 1:].flatten() for batch in batches])
    assert tails.min() >= 0
    assert tails.max() < 5


def test_one_entity() -> None:
    graph = graph_of(np.array([[0, 0, 0]]), 1, 1)
    with pytest.warns(DataWarning):
        training = start(SMALL, MODELS["transe"](dim=3), {"a": graph})
    assert training.run(0, 2).isfinite().all()


def test_no_training_triples() -> None:
    empty = graph_of(np.empty((0, 3)), 3, 1)
    with pytest.raises(DataError, match=r"^site 'b' has no training triples$"):
        Corpus.of({"a": SITES["a"], "b": empty}, 0)


@pytest.mark.parametrize("sites", [{"a": SITES["a"]}, SITES])
def test_subsampling_weights(sites: dict[str, Graph]) -> None:
    triples = Corpus.of(sites, 0).triples.tolist()
    tails, heads = Counter((h, r) for h, r, _ in triples), Counter((r, t) for _, r, t in triples)
    slow = [1 / ((3 + tails[h, r]) + (3 + heads[r, t])) ** 0.5 for h, r, t in triples]
    assert Corpus.of(sites, 0).subsampling().tolist() == pytest.approx(slow, rel=1e-6)


@pytest.mark.parametrize("subsampling", [False, True])
def test_weights_of_a_batch_sum_to_one_per_site(subsampling: bool) -> None:
    corpus = Corpus.of(SITES, 0)
    raw = dict(zip(map(tuple, corpus.triples.tolist()), corpus.subsampling().tolist(), strict=True))
    for batch in epoch(replace(SMALL, subsampling=subsampling)):
        for number in batch.site.unique().tolist():
            mine = batch.site == number
            assert batch.weight[mine].sum().item() == pytest.approx(1, abs=1e-5)
            own = [raw[tuple(t)] if subsampling else 1.0 for t in triples_of(batch)[mine].tolist()]
            assert batch.weight[mine].tolist() == pytest.approx([w / sum(own) for w in own], rel=1e-4)


def test_sites_stand_one_after_another() -> None:
    corpus = Corpus.of(SITES, 0)
    shift = firsts(SITES)
    for number, (name, graph) in enumerate(SITES.items()):
        mine = corpus.site == number
        assert corpus.names[number] == name
        local = corpus.triples[mine] - torch.tensor([shift[number], 0, shift[number]])
        local[:, 1] -= sum(other.n_relations for other in list(SITES.values())[:number])
        assert torch.equal(local, torch.from_numpy(graph.train))
        assert corpus.local[mine].tolist() == list(range(len(graph.train)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, r"^trainer\.epochs: expected at least 1, got 0$"),
        ({"batch_size": 0}, r"^trainer\.batch_size: expected at least 1, got 0$"),
        ({"negatives": -1}, r"^trainer\.negatives: expected at least 1, got -1$"),
        ({"epochs": 10**18}, r"^trainer\.epochs: expected at most 1,000,000, got 1,000,"),
        ({"batch_size": 10**18}, r"^trainer\.batch_size: expected at most 2,147,483,647, got 1,000,"),
        ({"negatives": 1_000_001}, r"^trainer\.negatives: expected at most 1,000,000, got 1,000,001$"),
        ({"chunk": 2**31}, r"^trainer\.chunk: expected at most 2,147,483,647, got 2,147,483,648$"),
        ({"temperature": -0.5}, r"^trainer\.temperature: expected at least 0, got -0\.5$"),
        ({"temperature": 1e39}, r"^trainer\.temperature: expected at most 1e\+30, got 1e\+39$"),
        ({"temperature": float("nan")}, r"^trainer\.temperature: .*got nan$"),
        ({"ranking_margin": float("nan")}, r"^trainer\.ranking_margin: .*got nan$"),
        ({"lr": 0}, r"^trainer\.lr: expected a number above 0, got 0\.0$"),
        ({"lr": float("nan")}, r"^trainer\.lr: .*got nan$"),
        ({"lr": float("inf")}, r"^trainer\.lr: .*got inf$"),
        ({"lr": "fast"}, r"^trainer\.lr: expected float, got 'fast'$"),
        ({"loss": "margn"}, r"^trainer\.loss: expected one of .*, got 'margn'; did you mean 'margin'\?$"),
        ({"optimizer": "adm"}, r"^trainer\.optimizer: expected one of .*; did you mean 'adam'\?$"),
        ({"sides": "heads"}, r"^trainer\.sides: .*got 'heads'; did you mean 'head'\?$"),
        ({"optimiser": "adam"}, r"^trainer\.optimiser: no such option; did you mean 'optimizer'\?"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(Trainer, options, "trainer")


def test_the_largest_counts_are_counts() -> None:
    assert vars(Trainer(**MOST)).items() >= MOST.items()


def test_bad_sides_in_python() -> None:
    with pytest.raises(
        ConfigError, match=r"^sides: expected .*both, alternate, head, tail, got 'tails'; did"
    ):
        Trainer(sides="tails")


def test_ordinary_graphs_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Corpus.of(SITES, 0)
