"""What a site learns of rows that one other has: by hand, and whoever takes part by whichever method."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedkge.audits.pairs import Pairs, Replay
from fedkge.exchange.rows import Rows
from fedkge.graphs.across import without_leaks
from fedkge.graphs.graph import Axis, Federation, Graph
from fedkge.methods import METHODS, Hub, Method, Pair
from fedkge.methods.fede import FedE
from fedkge.methods.pfedeg import PFedEG
from fedkge.runs.data import Sources
from fedkge.runs.folder import RunFolder
from small_federations import experiment, played, small_graph

AFFINITIES = ("cosine", "cosine-mean", "jaccard", "uniform")
METHOD_OPTIONS: list[dict[str, Any]] = [
    {"name": "fede"},
    {"name": "fede", "absent": "last"},
    {"name": "fedr", "share": "both"},
    {"name": "fedlu"},
    *({"name": "pfedeg", "affinity": affinity} for affinity in AFFINITIES),
]


def sites(**spans: tuple[int, int]) -> dict[str, Graph]:
    """Sites that have the entities numbered from one number to another, and relations in common."""
    graphs = {
        site: small_graph(number, [f"e{i}" for i in range(*span)], [f"r{k}" for k in range(3)], 4 * span[1])
        for number, (site, span) in enumerate(spans.items())
    }
    return without_leaks(graphs, graphs)


TWO = sites(a=(0, 20), b=(10, 40))
SEVERAL = sites(a=(0, 20), b=(10, 40), c=(15, 50), d=(45, 70))  # of two: e10-14, e20-39 and e45-49


def replayed(path: Path, federation: Federation, rounds: int = 1, **changes: Any) -> Replay:
    one = experiment(rounds=rounds + 1, evaluate={"every": rounds + 1}, **changes)
    folder = RunFolder.create(path / "replay", one, resume=False)
    replay = Replay(one, Sources.of(one, federation), folder, rounds)
    replay.play()
    return replay


# The hub alone: what is told is made of two rows, in these parts

OWNED = {"a": [0, 1, 2, 3], "b": [1, 2, 4, 5, 6], "c": [0, 3, 4, 5, 6], "d": []}  # 0 to 6, each at two sites
AVERAGING: dict[str, Method] = {
    **{name: METHODS[name]() for name in METHODS if METHODS[name].averages},
    "fede, last": FedE(absent="last"),
    **{f"pfedeg, {affinity}": PFedEG(affinity=affinity) for affinity in AFFINITIES},  # type: ignore[arg-type]
}


def test_who_averages() -> None:
    assert {name for name in METHODS if not METHODS[name].averages} == {"single", "collective", "fkge"}


def random_rows(random: torch.Generator, ids: list[int]) -> Rows:
    return Rows(torch.tensor(ids, dtype=torch.int64), torch.randn(len(ids), 4, generator=random))


@pytest.mark.parametrize("name", AVERAGING)
@given(st.data())
@settings(max_examples=12, deadline=None)
def test_what_is_told_is_both_rows_in_the_parts_that_the_method_says(name: str, data: st.DataObject) -> None:
    """Some sites, sometimes with some rows, over rounds."""
    method, random = AVERAGING[name], torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    axis = method.shares[0]
    ids = {
        site: {one: torch.tensor(owned, dtype=torch.int64) for one in Axis} for site, owned in OWNED.items()
    }
    hub = Hub(ids, dict.fromkeys(Axis, 7), totals={site: {axis: len(ids[site][axis]) + 3} for site in ids})
    last: dict[tuple[str, int], tuple[int, Tensor]] = {}  # site, entity -> round, row
    for number in range(1, 1 + data.draw(st.integers(1, 4))):
        hub.sparse = data.draw(st.booleans())
        uploads = {}
        for site in data.draw(st.lists(st.sampled_from("abcd"), unique=True, min_size=1)):
            some = st.lists(st.sampled_from(OWNED[site] or [0]), unique=True, min_size=1)
            chosen = sorted(data.draw(some)) if hub.sparse else OWNED[site]
            if OWNED[site]:
                sent = random_rows(random, chosen)
                uploads[site] = {axis: sent}
                rows = zip(chosen, sent.values, strict=True)
                last |= {(site, e): (number, row) for e, row in rows}
        hub.fresh.clear()
        method.aggregate(hub, uploads)
    never = 0, torch.zeros(4)
    for site in OWNED:
        told = method.answer(hub, site).get(axis, random_rows(random, []))
        for e, answer in zip(told.ids.tolist(), told.values, strict=True):
            (other,) = (one for one in OWNED if one != site and e in OWNED[one])
            (mine, own), (theirs, row) = last.get((site, e), never), last.get((other, e), never)
            pair = Pair(axis, site, other, torch.tensor([mine]), torch.tensor([theirs]))
            part = float(method.own_part(hub, pair))
            assert 0 <= part <= 1
            assert part == 0 if not mine else part == 1 if not theirs else True
            torch.testing.assert_close(answer, part * own + (1 - part) * row, rtol=1e-4, atol=1e-5)


# Two sites, one round, by hand


def trained(path: Path, **changes: Any) -> dict[str, dict[str, Tensor]]:
    """Site -> entity -> the row that it has after one round alone."""
    fed = played(path / "alone", TWO, method={"name": "single"}, rounds=1, evaluate={"every": 1}, **changes)
    now = {site: fed.stack_of[site].sites[site].tables.entities for site in TWO}
    return {site: dict(zip(TWO[site].entities, now[site], strict=True)) for site in TWO}


def relative(found: Tensor, row: Tensor) -> float:
    return float((found.double() - row.double()).norm() / row.double().norm())


@pytest.mark.parametrize(
    "method", [{"name": "fedep"}, {"name": "pfedeg", "affinity": "uniform", "beta": 0.0}], ids=str
)
def test_two_sites_find_what_can_be_computed_by_hand(tmp_path: Path, method: dict[str, Any]) -> None:
    """Coded coarsely, so that errors are seen: each takes its own coded row out of the coded mean."""
    replay = replayed(tmp_path, TWO, method=method, codec={"name": "float16"})
    part, error, guess = replay.found(Axis.ENTITY)
    row = trained(tmp_path)
    errors, guesses = [], []
    for own, other in (("a", "b"), ("b", "a")):
        for name in (f"e{i}" for i in range(10, 20)):
            mine, theirs = (row[site][name].half().float() for site in (own, other))
            mean = ((mine + theirs) / 2).half().float()
            errors.append(relative(2 * mean - mine, row[other][name]))
            guesses.append(relative(row[own][name], row[other][name]))
    assert part.tolist() == [0.5] * 20
    assert sorted(guess) == pytest.approx(sorted(guesses))
    assert sorted(error) == pytest.approx(sorted(errors), rel=0.05, abs=1e-6)
    assert 1e-5 < min(errors) < max(errors) < 1e-2


def test_half_a_mean_is_wrong_where_the_hub_weighs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That rows are found says something about the parts: others find none."""
    method = {"name": "pfedeg", "affinity": "cosine-mean"}
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    part, error, _ = replayed(right, SEVERAL, method=method).found(Axis.ENTITY)
    assert 0.05 < part.min() < part.max() < 0.4
    assert error.max() < 1e-5
    monkeypatch.setattr(PFedEG, "own_part", FedE().own_part.__func__)  # type: ignore[attr-defined]
    monkeypatch.setattr(PFedEG, "absent", "out", raising=False)
    assert replayed(wrong, SEVERAL, method=method).found(Axis.ENTITY)[1].min() > 1e-2


def test_most_of_an_answer_is_the_others_row_where_likeness_is_summed(tmp_path: Path) -> None:
    replay = replayed(tmp_path, SEVERAL, method={"name": "pfedeg"})
    part, error, guess = replay.found(Axis.ENTITY)
    assert len(part) == 2 * 30 == 2 * len(replay.transcript.twice(Axis.ENTITY))
    assert part.max() < 0.1
    assert error.max() < 1e-5
    assert guess.min() > 0.04


# Whoever takes part

SOME = {
    "some": {"participation": {"fraction": 0.5}},
    "some rows": {"participation": {"fraction": 0.5}, "select": {"name": "topk", "p": 0.5, "s": 2}},
    "lost": {"participation": {"quorum": 0.5, "dropout": 0.4}},
    "late": {"participation": {"fraction": 0.8, "quorum": 0.4, "late": "use", "dropout": 0.1}},
    "refused": {"participation": {"quorum": 0.4}, "select": {"name": "topk", "p": 0.5, "s": 2}},
}


@pytest.mark.parametrize("some", SOME)
@pytest.mark.parametrize("method", METHOD_OPTIONS, ids=str)
def test_every_row_is_what_the_other_had_when_it_last_sent_it(
    tmp_path: Path, method: dict[str, Any], some: str
) -> None:
    trainer = {"epochs": 1, "batch_size": 64}
    replay = replayed(tmp_path, SEVERAL, 6, method=method, trainer=trainer, **SOME[some])
    for axis in replay.experiment.method.shares:
        part, error, guess = replay.found(axis)
        assert (len(error) > 0) == (len(replay.transcript.twice(axis)) > 0)
        if axis is Axis.ENTITY:
            assert error.max() < 2e-4
            assert guess.min() > 10 * error.max()
            assert part.max() <= 0.5 + 1e-9


def test_who_was_not_asked_is_told_the_other_row_as_it_is(tmp_path: Path) -> None:
    """Half of the sites, so that often one of two has sent and the other has not."""
    fede = replayed(tmp_path, SEVERAL, 7, method={"name": "fede"}, participation={"fraction": 0.5})
    assert set(fede.found(Axis.ENTITY)[0].tolist()) == {0.0, 0.5}


@pytest.mark.parametrize("select", ["full", "topk"])
def test_a_rule_that_outvotes_one_of_three_hides_nothing_from_one_of_two(tmp_path: Path, select: str) -> None:
    rule = {"name": "median", "factor": 1e6}
    options: dict[str, Any] = {"method": {"name": "fedep"}, "select": {"name": select}, "aggregate": rule}
    _, error, guess = replayed(tmp_path, SEVERAL, 3, **options).found(Axis.ENTITY)
    assert error.max() < 2e-4 < guess.min()


# Who has nothing to learn

ALONE: Mapping[str, Federation] = {
    "a site that has nothing in common": {**SEVERAL, **sites(lone=(100, 120))},
    "two that have nothing in common": sites(a=(0, 20), b=(30, 50)),
    "one site": sites(a=(0, 20)),
}


@pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")
@pytest.mark.parametrize("alone", ALONE)
@pytest.mark.parametrize("method", [{"name": name} for name in ("fede", "feds", "fedlu", "pfedeg")], ids=str)
def test_sites_with_nothing_in_common_are_passed_over(
    tmp_path: Path, method: dict[str, Any], alone: str
) -> None:
    trainer = {"epochs": 1, "batch_size": 64}
    replay = replayed(tmp_path, ALONE[alone], 4, method=method, trainer=trainer, **SOME["some"])
    _, error, _ = replay.found(Axis.ENTITY)
    assert (len(error) > 0) == (len(ALONE[alone]) > 2)
    assert error.max(initial=0) < 2e-4


# In words


def said(**row: Any) -> str:
    plain = {"run": "one", "codec": "float32", "axis": "entity", "rounds": 1, "names": 7, "noisy": False}
    return Pairs().words([plain | {"rows": 3, "recovered": 1.0, "error": 1e-6} | row])


def test_a_sentence_says_what_the_attacker_has_to_know() -> None:
    assert "up to 0.5 of an answer, is taken off: the attacker is taken to know" in said(own_part=0.5)
    assert "the other's rows as they are: nothing need be known" in said(own_part=0.0)
    assert "as they are, but for 2e-05 of them at most, which is a site's own" in said(own_part=2e-5)
    assert (
        said(rows=0, names=0) == "one: no entities are at exactly two sites: no row can be computed this way."
    )
    assert "none of those sites was told the other's row in 1 round: try more --rounds" in said(rows=0)
    assert "in 3 rounds" in said(rows=0, rounds=3)
