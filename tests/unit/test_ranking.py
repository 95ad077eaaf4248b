"""Filtered ranks by counting, against ranks by sorting; chunks, kernels, constraints, divergence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedkge.errors import ConfigError, DataError
from fedkge.evaluation import Known, Ranks, TypeConstraints, combined, metrics, metrics_by_relation, rank
from fedkge.evaluation import ranking as ranking_module
from fedkge.graphs.graph import Graph, Ids, Names
from fedkge.kernels.ranking import Listed, count_, count_by_comparing_
from fedkge.models import MODELS, Side, Tables

SIDES = (Side.HEAD, Side.TAIL)


def random_graph(n: int = 13, m: int = 4, size: int = 90, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    triples = rng.permutation(np.unique(rng.integers(0, [n, m, n], (size, 3)), axis=0))
    third = len(triples) // 4
    names = Names([f"e{i}" for i in range(n)]), Names([f"r{i}" for i in range(m)])
    return Graph(*names, triples[2 * third :], triples[:third], triples[third : 2 * third])


def random_tables(model: str, graph: Graph, seed: int = 0) -> Tables:
    keys = torch.arange(graph.n_entities), torch.arange(graph.n_relations)
    return Tables.create(MODELS[model](dim=6), *keys, seed)


def slow_ranks(
    tables: Tables, triples: Ids, known: Ids, side: Side, allowed: TypeConstraints | None = None
) -> list[tuple[int, int, int]]:
    """(optimistic, pessimistic, candidates) by sorting the scores of the candidates of each triple."""
    facts = set(map(tuple, known.tolist()))
    found = []
    for h, r, t in triples.tolist():
        anchor, answer = (h, t) if side is Side.TAIL else (t, h)
        scores = tables.all_scores(torch.tensor([anchor]), torch.tensor([r]), side)[0].tolist()
        typed = None if allowed is None else set(allowed.candidates(r, side).tolist())
        candidates = [answer]
        for e in range(len(scores)):
            fact = (h, r, e) if side is Side.TAIL else (e, r, t)
            if e != answer and fact not in facts and (typed is None or e in typed):
                candidates.append(e)
        ordered = sorted((scores[e] for e in candidates), reverse=True)
        first = ordered.index(scores[answer])
        found.append((first + 1, first + ordered.count(scores[answer]), len(candidates)))
    return found


def as_rows(ranks: Ranks, side: Side, size: int) -> list[tuple[int, int, int]]:
    mine = ranks.side(side)
    rows: list[tuple[int, int, int]] = [(0, 0, 0)] * size
    best, worst = mine.values("optimistic"), mine.values("pessimistic")
    for i, triple in enumerate(mine.triple):
        rows[triple] = int(best[i]), int(worst[i]), int(mine.candidates[i])
    return rows


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("restrict", [False, True])
def test_counting_equals_sorting(model: str, restrict: bool) -> None:
    graph = random_graph()
    tables = random_tables(model, graph)
    allowed = TypeConstraints.from_train(graph) if restrict else None
    ranks = rank(tables, graph.test, Known.from_graph(graph), candidates=allowed)
    for side in SIDES:
        assert as_rows(ranks, side, len(graph.test)) == slow_ranks(
            tables, graph.test, graph.all(), side, allowed
        )
    assert (graph.test[ranks.triple, 1] == ranks.relation).all()
    assert (ranks.values() == (ranks.values("optimistic") + ranks.values("pessimistic")) / 2).all()


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_chunks_change_nothing(chunk: int) -> None:
    graph = random_graph()
    tables, known = random_tables("transe", graph), Known.from_graph(graph)
    whole, pieces = (rank(tables, graph.test, known, chunk=size) for size in (None, chunk))
    for name in Ranks.__slots__:
        assert (getattr(whole, name) == getattr(pieces, name)).all(), name


def test_unfiltered_answers_rival_each_other() -> None:
    graph = random_graph()
    tables = random_tables("distmult", graph)
    nothing = Known.of(np.empty((0, 3), np.int64), graph.n_entities, graph.n_relations)
    ranks = rank(tables, graph.test, nothing, sides=[Side.TAIL])
    expected = slow_ranks(tables, graph.test, np.empty((0, 3), np.int64), Side.TAIL)
    assert as_rows(ranks, Side.TAIL, len(graph.test)) == expected
    assert (ranks.candidates == graph.n_entities).all()


def test_repeated_triples_are_ranked_each_time() -> None:
    graph = random_graph()
    tables, known = random_tables("rotate", graph), Known.from_graph(graph)
    once, thrice = (rank(tables, np.repeat(graph.test, times, 0), known) for times in (1, 3))
    assert len(thrice) == 3 * len(once)
    same = {**metrics(thrice), "count": len(once)}
    assert same == pytest.approx(metrics(once))


def test_a_lone_entity_ranks_first() -> None:
    triples = np.array([[0, 0, 0]])
    graph = Graph(Names(["a"]), Names(["r"]), triples, test=triples)
    ranks = rank(random_tables("transe", graph), graph.test, Known.from_graph(graph))
    assert ranks.values("pessimistic").tolist() == [1, 1]
    assert ranks.candidates.tolist() == [1, 1]


def test_constant_scores_tie_in_the_middle() -> None:
    graph = random_graph()
    tables = random_tables("transe", graph)
    tables.entities.zero_()
    ranks = rank(tables, graph.test, Known.from_graph(graph))
    assert (ranks.values("optimistic") == 1).all()
    assert (ranks.values("pessimistic") == ranks.candidates).all()
    assert (ranks.values() == (1 + ranks.candidates) / 2).all()


@pytest.mark.parametrize("model", ["transe", "rotate"])
def test_equal_rows_tie_exactly(model: str) -> None:
    """Whatever their place in the table: summed in different orders, they would not be equal."""
    graph = random_graph(n=39, size=300)
    tables = Tables.create(MODELS[model](dim=37), torch.arange(39), torch.arange(4), 0)
    tables.entities[:] = tables.entities[0]
    ranks = rank(tables, graph.test, Known.from_graph(graph))
    assert (ranks.greater == 0).all()
    assert (ranks.equal == ranks.candidates - 1).all()


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), 3e38])  # the last one overflows
@pytest.mark.parametrize("kernels", ["auto", "reference"])
def test_scores_that_are_not_finite_are_an_error(
    strange: float, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDKGE_KERNELS", kernels)
    graph = random_graph()
    tables = random_tables("transe", graph)
    tables.entities[7] = strange
    with pytest.raises(DataError, match=r"not finite at site clinic.*learning rate"):
        rank(tables, graph.test, Known.from_graph(graph), site="clinic")


def test_triples_of_another_graph_are_an_error() -> None:
    graph, other = random_graph(), random_graph(n=14)
    tables = random_tables("transe", graph)
    with pytest.raises(DataError, match="tables of 13 entities and 4 relations, a graph of 14 and 4"):
        rank(tables, graph.test, Known.from_graph(other))
    with pytest.raises(DataError, match="entity id 13: expected 0 to 12"):
        rank(tables, np.array([[0, 0, 13]]), Known.from_graph(graph))
    with pytest.raises(DataError, match="type constraints over 14 entities"):
        rank(tables, graph.test, Known.from_graph(graph), candidates=TypeConstraints.openke(other))
    with pytest.raises(ConfigError, match="chunk: expected at least 1, got -1"):
        rank(tables, graph.test, Known.from_graph(graph), chunk=-1)
    with pytest.raises(DataError, match="relation id -1"):
        rank(tables, np.array([[0, -1, 0]]), Known.from_graph(graph))


@pytest.mark.parametrize("model", ["transe", "transr", "rotate"])
def test_plain_torch_ranks_alike(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph()
    tables, known = random_tables(model, graph).to("cpu", torch.float64), Known.from_graph(graph)
    typed = TypeConstraints.openke(graph)
    fast = rank(tables, graph.test, known, candidates=typed)
    monkeypatch.setenv("FEDKGE_KERNELS", "reference")
    plain = rank(tables, graph.test, known, candidates=typed)
    for name in Ranks.__slots__:
        assert (getattr(fast, name) == getattr(plain, name)).all(), name


@pytest.mark.parametrize("model", ["transe", "transh", "rotate", "complex"])
def test_devices_rank_alike(model: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers score without rounding (RotatE's phases are 0): no device may differ by a tie."""
    graph = random_graph()
    tables, known = random_tables(model, graph), Known.from_graph(graph)
    rng = np.random.default_rng(1)
    for table, low in ((tables.entities, -2), (tables.relations, 0 if model == "rotate" else -2)):
        table.copy_(torch.from_numpy(rng.integers(low, 3 if low else 1, table.shape).astype(np.float32)))
    if model == "rotate":
        tables.entities[:, 6:] = 0
    typed = TypeConstraints.from_train(graph)
    ranks = rank(tables.to(device), graph.test, known, chunk=5, candidates=typed)
    monkeypatch.setenv("FEDKGE_KERNELS", "reference")
    for side in SIDES:
        expected = slow_ranks(tables, graph.test, graph.all(), side, typed)
        assert as_rows(ranks, side, len(graph.test)) == expected


@pytest.mark.parametrize("restrict", [False, True])
def test_counting_kernel_equals_its_plain_twin(restrict: bool) -> None:
    rng = np.random.default_rng(3)
    scores = torch.from_numpy(rng.integers(0, 4, (9, 21)).astype(np.float32))
    query = torch.from_numpy(np.sort(rng.integers(0, 9, 30)))
    target = torch.from_numpy(rng.integers(0, 21, 30))

    def lists(size: int) -> Listed:
        parts = [np.sort(rng.permutation(21)[: rng.integers(0, size)]) for _ in range(9)]
        ends = np.cumsum([0, *map(len, parts)])
        ids, lo, hi = map(torch.from_numpy, (np.concatenate(parts), ends[:-1], ends[1:]))
        return Listed(ids, lo, hi, int(ends[-1]))

    known, allowed = lists(12), lists(21) if restrict else None
    fast = count_(scores.clone(), query, target, known, allowed)
    plain = count_by_comparing_(scores.clone(), query, target, known, allowed)
    for a, b in zip(fast, plain, strict=True):
        assert torch.equal(a, b)


def test_the_chunk_halves_when_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph()
    tables, known = random_tables("transe", graph), Known.from_graph(graph)
    expected = rank(tables, graph.test, known)
    sizes = []

    def small(scores: torch.Tensor, *rest: object) -> object:
        sizes.append(len(scores))
        if len(scores) > 2:
            raise torch.cuda.OutOfMemoryError
        return count_(scores, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ranking_module, "count_", small)
    ranks = rank(tables, graph.test, known, chunk=9, sides=[Side.TAIL])
    assert sizes[:4] == [9, 4, 2, 2]
    assert (ranks.greater == expected.side(Side.TAIL).greater).all()


def test_a_chunk_stays_within_its_bytes() -> None:
    graph = random_graph()
    tables = random_tables("transe", graph)
    large = Tables(tables.model, torch.empty(100_000, 6), tables.relations)
    chunk = ranking_module._fitting(large)
    assert 1 < chunk < ranking_module._fitting(tables)
    assert chunk * 100_000 * 4 <= ranking_module.BYTES


def test_constraints_from_train_do_not_see_test() -> None:
    train, test = np.array([[0, 0, 1], [2, 0, 1]]), np.array([[0, 0, 2]])
    graph = Graph(Names(["a", "b", "c"]), Names(["r"]), train, test=test)
    fair, leaky = TypeConstraints.from_train(graph), TypeConstraints.openke(graph)
    assert fair.candidates(0, Side.TAIL).tolist() == [1]
    assert leaky.candidates(0, Side.TAIL).tolist() == [1, 2]
    assert fair.candidates(0, Side.HEAD).tolist() == [0, 2]
    ranks = rank(random_tables("transe", graph), test, Known.from_graph(graph), candidates=fair)
    assert ranks.side(Side.TAIL).candidates.tolist() == [1]  # b is known, c is the answer itself


def ranks_of(greater: list[int], equal: list[int], relation: list[int], tail: list[bool]) -> Ranks:
    q = len(greater)
    lines = (np.arange(q), relation, tail, greater, equal, np.full(q, 100))
    return Ranks(*map(np.asarray, lines))


def test_metrics_are_means_of_ranks() -> None:
    ranks = ranks_of([0, 0, 3, 10], [0, 1, 2, 0], [0, 0, 1, 1], [True, False, True, False])
    assert ranks.values().tolist() == [1, 1.5, 5, 11]
    both = metrics(ranks)
    assert both["mrr"] == pytest.approx((1 + 1 / 1.5 + 1 / 5 + 1 / 11) / 4)
    assert [both[k] for k in ("mr", "hits@1", "hits@3", "hits@5", "hits@10", "count")] == [
        pytest.approx(18.5 / 4),
        0.25,
        0.5,
        0.75,
        0.75,
        4,
    ]
    assert metrics(ranks, side=Side.TAIL)["mr"] == 3
    assert metrics(ranks, "pessimistic")["hits@1"] == 0.25
    assert metrics(ranks, "optimistic")["hits@1"] == 0.5
    by_relation = metrics_by_relation(ranks)
    assert by_relation[0] == pytest.approx(metrics(ranks.where(ranks.relation == 0)))
    assert by_relation[1] == pytest.approx(metrics(ranks.where(ranks.relation == 1)))
    assert list(by_relation) == [0, 1]
    assert combined([by_relation[0], by_relation[1]]) == pytest.approx(both)


def test_sites_weigh_by_their_questions() -> None:
    large, small = ranks_of([0] * 3, [0] * 3, [0] * 3, [True] * 3), ranks_of([1], [0], [0], [True])
    empty = metrics(ranks_of([], [], [], []))
    assert np.isnan(empty["mrr"])
    together = combined([metrics(large), metrics(small), empty])
    assert together["mr"] == 1.25
    assert together["count"] == 4


def test_known_answers_are_sorted_and_found() -> None:
    graph = random_graph()
    known, facts = Known.from_graph(graph), set(map(tuple, graph.all().tolist()))
    everything = np.array([(h, r, t) for h in range(13) for r in range(4) for t in range(13)])
    assert known.contains(everything).tolist() == [tuple(x) in facts for x in everything.tolist()]
    twice = Known.of(np.concatenate((graph.all(), graph.all()[::-1])), 13, 4)
    assert (twice.tails.codes == known.tails.codes).all()
    for side, lists in ((Side.TAIL, known.tails), (Side.HEAD, known.heads)):
        lo, hi = lists.ranges(known.key(np.array([5]), np.array([2])))
        answers = sorted(
            t if side is Side.TAIL else h
            for h, r, t in facts
            if r == 2 and (h if side is Side.TAIL else t) == 5
        )
        assert lists.ids[lo[0] : hi[0]].tolist() == answers
    keys = np.repeat(known.key(np.arange(13), np.full(13, 1)), 2)
    lo, hi = known.tails.ranges(keys)
    order = np.tile([0, 1], 13)
    for head, nth, found in zip(
        np.repeat(np.arange(13), 2), order, known.tails.missing(keys, order), strict=True
    ):
        assert found == [t for t in range(13) if (head, 1, t) not in facts][nth]


def test_too_many_pairs_to_number_is_an_error() -> None:
    with pytest.raises(DataError, match="too many"):
        Known.of(np.empty((0, 3), np.int64), 2**31, 4)
