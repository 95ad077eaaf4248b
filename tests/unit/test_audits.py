"""Attacks' arithmetic against outside oracles and slow versions; whom attacks are tried on."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.audits import roc
from fedkge.audits.candidates import candidates
from fedkge.audits.clustering import agreements, chosen, nmi
from fedkge.audits.membership import SIGNALS, signals
from fedkge.audits.neighbours import draw, without
from fedkge.audits.ranks import critical, histogram
from fedkge.audits.ranksum import mann_whitney
from fedkge.audits.roc import Scored
from fedkge.audits.targets import told_apart
from fedkge.errors import ConfigError, DataError
from fedkge.graphs.exposure import exposures
from fedkge.graphs.graph import Axis, Graph
from fedkge.models import MODELS
from fedkge.randomness import generator
from small_graphs import first_tables, graph_of, names_of

few = st.lists(st.integers(0, 6).map(float), min_size=2, max_size=30).map(np.array)


def normal(seed: int, n: int = 200, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 1, n)


# Numbers


@given(few, few)
@settings(max_examples=60, deadline=None)
def test_auc_is_that_of_scikit_learn(members: np.ndarray, others: np.ndarray) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    expected = metrics.roc_auc_score(
        [1] * len(members) + [0] * len(others), np.concatenate((members, others))
    )
    found = roc.auc([Scored(members, others)])
    assert found.value == pytest.approx(expected)
    assert 0 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 1


@given(few, few)
@settings(max_examples=30, deadline=None)
def test_delong_is_the_variance_of_its_two_placements(members: np.ndarray, others: np.ndarray) -> None:
    wins = (members[:, None] > others) + 0.5 * (members[:, None] == others)  # [n, m]
    parts = wins.mean(1), wins.mean(0)
    variance = sum(part.var(ddof=1) / len(part) for part in parts)
    found = roc.auc([Scored(members, others)])
    if 0 < found.value < 1:
        assert found.low == pytest.approx(max(0, wins.mean() - roc.Z * variance**0.5))


@given(few, few, st.sampled_from([0.0, 0.01, 0.1, 0.3, 0.99]))
@settings(max_examples=60, deadline=None)
def test_hits_are_the_best_that_scikit_learns_curve_allows(
    members: np.ndarray, others: np.ndarray, rate: float
) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    truth = [1] * len(members) + [0] * len(others)
    fpr, tpr, _ = metrics.roc_curve(truth, np.concatenate((members, others)), drop_intermediate=False)
    found = roc.hits([Scored(members, others)], rate, generator(0, "test"))
    assert found.value == pytest.approx(tpr[fpr <= rate + 1e-12].max())
    assert found.low <= found.value <= found.high


def test_intervals_hold_what_they_promise() -> None:
    """Of 200 samples, about 95 % of the intervals contain the true value."""
    inside = {"auc": 0, "share": 0, "median": 0}
    true_auc = 0.7602  # of normals whose means are 1 apart: Φ(1 / √2)
    for seed in range(200):
        found = roc.auc([Scored(normal(seed, 60, 1.0), normal(1000 + seed, 60))])
        inside["auc"] += found.low <= true_auc <= found.high
        successes = int(np.random.default_rng(seed).binomial(50, 0.3))
        found = roc.proportion(successes, 50)
        inside["share"] += found.low <= 0.3 <= found.high
        found = roc.median(normal(seed, 50))
        inside["median"] += found.low <= 0 <= found.high
    assert all(180 <= count <= 200 for count in inside.values()), inside


def test_groups_are_judged_each_by_its_own_threshold() -> None:
    """Scales of two models mean nothing to each other: together they would seem hard to tell apart."""
    near, far = Scored(normal(1, shift=3), normal(2)), Scored(normal(3, shift=103), normal(4, shift=100))
    both = roc.auc([near, far])
    assert both.value == pytest.approx((roc.auc([near]).value + roc.auc([far]).value) / 2)
    assert both.value > 0.95
    assert roc.hits([near, far], 0.01, generator(0)).value > 0.5
    points = roc.curve([near, far])
    assert points[-1] == (1.0, 1.0)
    assert all(a <= b for (_, a), (_, b) in pairwise(points))


def test_a_perfect_attack_is_not_quite_certain() -> None:
    found = roc.auc([Scored(np.arange(10.0) + 100, np.arange(10.0))])
    assert found.value == 1
    assert found.low == pytest.approx(0.025**0.1)  # ten pairs of different triples


def test_what_epsilon_allows_is_what_the_privacy_page_says() -> None:
    """13.6 % at ε = 1, 37 % at ε = 2, 95.3 % at ε = 3, of a test with 5 % false alarms."""
    found = [roc.allowed(epsilon, 0.0, 0.05) for epsilon in (1, 2, 3)]
    assert found == pytest.approx([0.136, 0.369, 0.953], abs=6e-4)
    assert roc.allowed(0.0, 0.0, 0.3) == pytest.approx(0.3)
    assert roc.allowed(1e9, 0.0, 0.01) == 1


def test_an_attack_needs_both_kinds() -> None:
    with pytest.raises(DataError, match="members and non-members"):
        roc.auc([Scored(normal(0), np.empty(0))])


@given(few, few)
@settings(max_examples=60, deadline=None)
def test_mann_whitney_is_that_of_scipy(first: np.ndarray, second: np.ndarray) -> None:
    stats = pytest.importorskip("scipy.stats")
    found = mann_whitney(first, second)
    if len(set(np.concatenate((first, second)).tolist())) == 1:
        assert found.p == 1
        return
    expected = stats.mannwhitneyu(first, second, method="asymptotic", alternative="two-sided")
    assert found.u == pytest.approx(expected.statistic)
    assert found.p == pytest.approx(min(1.0, expected.pvalue))


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_nmi_is_that_of_scikit_learn(seed: int, a: int, b: int) -> None:
    cluster = pytest.importorskip("sklearn.metrics.cluster")
    random = np.random.default_rng(seed)
    first, second = random.integers(0, a, 40), random.integers(0, b, 40)
    expected = cluster.normalized_mutual_info_score(first, second)
    assert nmi(first, second) == pytest.approx(expected, abs=1e-9)


# Clusters


def test_models_of_the_same_groups_agree_and_of_none_do_not() -> None:
    pytest.importorskip("sklearn")
    random = np.random.default_rng(0)
    centres = np.repeat(np.eye(3) * 20, 30, axis=0)
    alike = [centres + random.normal(0, 1, centres.shape) for _ in range(3)]
    turned = [rows @ np.linalg.qr(random.normal(0, 1, (3, 3)))[0] for rows in alike]
    noise = [random.normal(0, 1, centres.shape) for _ in range(3)]
    found = agreements({"plain": alike, "private": turned, "nothing": noise}, [3], 5, 0)
    by_pair = {(one.first, one.second): one for one in found}
    assert by_pair["plain", "private"].mean == pytest.approx(1)
    assert by_pair["plain", "private"].pairs == 25
    assert by_pair["plain", "plain"].mean == pytest.approx(1)
    assert by_pair["plain", "nothing"].mean < 0.2
    assert len(found) == 6


def test_clusters_that_cannot_be() -> None:
    pytest.importorskip("sklearn")
    rows = [np.zeros((4, 2))]
    with pytest.raises(ConfigError, match="from 2 to the 4 entities"):
        agreements({"a": rows, "b": rows}, [5], 2, 0)
    with pytest.raises(ConfigError, match="--repeats"):
        agreements({"a": rows, "b": rows}, [2], 1, 0)


def test_entities_are_chosen_by_relation_or_name() -> None:
    graph = graph_of(np.array([[0, 0, 1], [2, 1, 3], [2, 0, 4]]), 5, 2)
    assert chosen(graph, "r0", "head", None) == ["e0", "e2"]
    assert chosen(graph, "r0", "tail", None) == ["e1", "e4"]
    assert chosen(graph, None, "head", ["e3", "e1", "e3"]) == ["e3", "e1"]
    assert len(chosen(graph, None, "head", None)) == 5
    with pytest.raises(DataError, match="no entity is named 'e9'"):
        chosen(graph, None, "head", ["e1", "e9"])


# Whom attacks are tried on


def world(seed: int = 0, marked: float = 0.0) -> Graph:
    random = np.random.default_rng(seed)
    triples = random.permutation(np.unique(random.integers(0, [30, 4, 30], (500, 3)), axis=0))
    graph = graph_of(triples[100:], 30, 4)
    marks = random.random(len(triples) - 100) < marked if marked else None
    return replace(graph, valid=triples[:50], test=triples[50:100], confidential=marks)


@given(st.integers(0, 30), st.sampled_from([0.0, 0.3]), st.sampled_from([5, 40, 1000]))
@settings(max_examples=30, deadline=None)
def test_members_and_others_differ_in_membership_alone(seed: int, marked: float, most: int) -> None:
    graph = world(seed, marked)
    found = candidates(graph, most, 0, "site")
    train = {tuple(row) for row in graph.train.tolist()}
    assert found.confidential == (marked > 0)
    assert {tuple(row) for row in found.members.tolist()} <= train
    assert not {tuple(row) for row in found.others.tolist()} & train
    counts = [np.bincount(side[:, 1], minlength=4).tolist() for side in (found.members, found.others)]
    assert counts[0] == counts[1]
    assert len(np.unique(found.members, axis=0)) == len(found.members) <= most
    if marked:
        secret = {tuple(row) for row in graph.train[graph.confidential].tolist()}
        assert {tuple(row) for row in found.members.tolist()} <= secret


def test_the_last_triple_of_an_entity_is_no_member_to_try() -> None:
    """A split could not have held it out: an attack would tell it by its entity."""
    graph = graph_of(np.array([[0, 0, 1], [1, 0, 2], [2, 0, 0], [3, 0, 0], [4, 0, 4]]), 5, 1)
    graph = replace(graph, test=np.array([[0, 0, 2], [1, 0, 0], [2, 0, 1], [0, 0, 0], [1, 0, 1]]))
    found = candidates(graph, 10, 0, "site")
    assert sorted(found.members[:, 0].tolist()) == [0, 1, 2]


def test_nobody_to_try() -> None:
    graph = replace(graph_of(np.array([[0, 0, 1], [1, 0, 0]]), 3, 2), test=np.array([[0, 1, 2]]))
    with pytest.raises(DataError, match="site 'lab': no relation has both training triples"):
        candidates(graph, 10, 0, "lab")


def test_critical_attacks_are_confidential_and_of_different_questions() -> None:
    graph = world(1, 0.5)
    found = critical(graph, 50, 0, "site")
    secret = {tuple(row) for row in graph.train[graph.confidential].tolist()}
    assert {tuple(row) for row in found.tolist()} <= secret
    assert len(np.unique(found[:, :2], axis=0)) == len(found) == 50


def test_a_histogram_counts_everyone_once() -> None:
    ranks = {"a": np.array([1.0, 1.5, 7, 300]), "b": np.array([2.0, 2, 2])}
    found = histogram(ranks)
    assert {name: sum(counts) for name, counts in found["counts"].items()} == {"a": 4, "b": 3}


# Signals


@pytest.mark.parametrize("name", ["transe", "distmult", "transh", "rotate"])
def test_signals_against_a_loop(name: str) -> None:
    graph = world()
    tables = first_tables(MODELS[name](dim=6), graph)
    found = signals(tables, graph.test)
    assert found.keys() == SIGNALS.keys()
    for i, (h, r, t) in enumerate(graph.test.tolist()):
        one = lambda h, t, r=r: float(tables.score(torch.tensor([h, r, t])))  # noqa: E731
        own, n = one(h, t), graph.n_entities
        tails = [one(h, e) for e in range(n) if e != t]
        heads = [one(e, t) for e in range(n) if e != h]
        assert found["score"][i] == pytest.approx(own, abs=1e-4)
        mean = (np.mean(tails) + np.mean(heads)) / 2
        assert found["calibrated"][i] == pytest.approx(own - mean, abs=1e-4)
        ranks = [1 + sum(x > own for x in side) for side in (tails, heads)]
        if min(abs(x - own) for x in tails + heads) > 1e-5:
            assert found["rank"][i] == pytest.approx(-np.log(ranks).mean(), abs=1e-9)


def test_signals_do_not_depend_on_how_many_are_scored_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = world()
    tables = first_tables(MODELS["transe"](dim=6), graph)
    whole = signals(tables, graph.test)
    monkeypatch.setattr("fedkge.audits.membership.NUMBERS", 100)
    for name, values in signals(tables, graph.test).items():
        np.testing.assert_allclose(values, whole[name], rtol=1e-6)


# Neighbouring graphs


def test_neighbours_differ_in_one_confidential_triple_and_in_no_name() -> None:
    graph = world(2, 0.4)
    for triple in draw(graph, 5, 0):
        smaller = without(graph, triple.tolist())
        gone = {tuple(row) for row in graph.train.tolist()} - {tuple(row) for row in smaller.train.tolist()}
        assert gone == {tuple(triple.tolist())}
        assert smaller.confidential is not None
        assert graph.confidential is not None
        assert smaller.confidential.sum() == graph.confidential.sum() - 1
        assert set(smaller.train[:, [0, 2]].ravel()) == set(graph.train[:, [0, 2]].ravel())
        assert set(smaller.train[:, 1]) == set(graph.train[:, 1])
    with pytest.raises(DataError, match="not in train"):
        without(graph, graph.test[0].tolist())
    with pytest.raises(DataError, match="can be taken away"):
        draw(graph, 10_000, 0)


# Names of two sites


def test_exposure_counts_names_of_exactly_two_sites() -> None:
    sites = {
        "a": graph_of(np.array([[0, 0, 1], [2, 0, 3]]), 4, 1),
        "b": graph_of(np.array([[0, 0, 1], [1, 1, 2]]), 3, 2),
        "c": graph_of(np.array([[0, 0, 1]]), 2, 1),
    }
    entity, relation = exposures(names_of(sites), list(Axis))
    assert (entity.shared, entity.by_two) == (3, 1)  # e0, e1 at three, e2 at two, e3 at one
    assert (relation.shared, relation.by_two) == (1, 0)
    assert "1 of 3 shared entities are at exactly two sites" in str(entity)


def test_audits_need_no_torch_to_be_judged(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = "import sys, fedkge.audits.roc, fedkge.reports.pages.audits; "
    code += "print(sorted({'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_runs_of_equal_folder_names_are_told_apart(tmp_path: Path) -> None:
    runs = [tmp_path / "plain" / "seed0", tmp_path / "strict" / "seed0"]
    assert told_apart(runs) == ["plain/seed0", "strict/seed0"]
    assert told_apart(runs[:1]) == ["seed0"]
    assert told_apart([tmp_path / "plain", tmp_path / "strict"]) == ["plain", "strict"]
    assert len(told_apart([runs[0], runs[0]])) == 2
