"""Rules of aggregation inside a federation: which methods they go with, and what hostile rows do to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedkge.aggregation import AGGREGATIONS, Aggregation, Mean
from fedkge.aggregation.bounded import Bounded
from fedkge.aggregation.median import Median
from fedkge.errors import ConfigError
from fedkge.exchange.rows import Message, Rows
from fedkge.graphs.across import without_leaks
from fedkge.graphs.graph import Axis
from fedkge.methods import METHODS, Hub
from fedkge.methods.fede import FedE
from fedkge.methods.pfedeg import PFedEG
from fedkge.nodes.learner import Fitted
from fedkge.runtimes.run import Progress, Simulated, Simulation
from small_federations import assert_same, differ, experiment, federated, played, rows, small_graph

SPANS = {"a": (0, 20), "b": (8, 30), "c": (4, 26), "d": (0, 30)}
GRAPHS = {
    site: small_graph(number, [f"e{i}" for i in range(*span)], ["r0", "r1", "r2"], 90)
    for number, (site, span) in enumerate(SPANS.items())
}
SITES = without_leaks(GRAPHS, GRAPHS)
ROBUST = [name for name in AGGREGATIONS if name != "mean"]
FAST = {"epochs": 1, "batch_size": 64}
HARD: dict[str, Any] = {  # some rows of some sites, some late, some lost, coded with memory
    "rounds": 6,
    "trainer": FAST,
    "participation": {"fraction": 0.8, "quorum": 0.6, "late": "use", "dropout": 0.1},
    "select": {"name": "topk", "p": 0.5, "s": 2},
    "codec": {"name": "int8"},
}


def fitting(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a method can have, which may insist on a selection or a codec of its own."""
    one = experiment(method={"name": method})
    own = {"select": one.selection != one.select, "codec": one.coding != one.codec}
    return {name: value for name, value in options.items() if not own.get(name)}


# With every method


@pytest.mark.parametrize(
    ("method", "name"),
    [
        *((method, "median") for method in METHODS if METHODS[method]().shares),
        *((method, name) for method in ("fede", "pfedeg") for name in ROBUST if name != "median"),
    ],
)
def test_it_goes_with_every_method_that_averages_and_resumes(tmp_path: Path, method: str, name: str) -> None:
    options: dict[str, Any] = {"method": {"name": method}, "aggregate": {"name": name}}
    if method == "pfedeg" and name != "bounded":
        with pytest.raises(ConfigError, match=rf"^aggregate\.name: pfedeg .*expected one of .*, got {name}"):
            experiment(**options)
        return
    options |= fitting(method, HARD)
    whole = played(tmp_path / "whole", SITES, **options)

    class Stopped(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.round == 4:
            raise Stopped

    broken = federated(tmp_path / "broken", SITES, how=Simulation(save_every=0), watch=stop, **options)
    with pytest.raises(Stopped):
        broken.play()
    resumed = federated(tmp_path / "broken", SITES, how=Simulation(save_every=0), **options)
    resumed.play()
    assert_same(whole, resumed)


@pytest.mark.parametrize("method", ["fede", "feds", "fedlu", "pfedeg"])
@pytest.mark.parametrize("select", ["full", "topk"])
def test_a_bound_that_nobody_meets_changes_nothing(tmp_path: Path, method: str, select: str) -> None:
    options = {"method": {"name": method}, **fitting(method, {"select": {"name": select}})}
    runs = [
        played(tmp_path / f"{factor}", SITES, aggregate=rule, **options)
        for factor, rule in (
            (0, {"name": "mean"}),
            (1, {"name": "bounded", "factor": 1e6}),
            (2, {"name": "bounded", "factor": 0.5}),
        )
    ]
    assert_same(*runs[:2])
    assert differ(runs[0], runs[2])


def test_what_the_hub_must_see() -> None:
    assert FedE().needs(Mean(), sparse=False) == "sums"
    assert FedE().needs(Mean(), sparse=True) == "rows"
    assert FedE(absent="last").needs(Mean(), sparse=False) == "rows"
    assert PFedEG().needs(Mean(), sparse=False) == "rows"
    assert METHODS["single"]().needs(Mean(), sparse=False) == "nothing"
    for name in ROBUST:
        assert FedE().needs(AGGREGATIONS[name](), sparse=False) == "rows"


# The hub alone

OWNED = {"a": [0, 1, 2, 3], "b": [0, 1, 2, 4], "c": [0, 1, 3, 4], "d": [0, 2, 3, 4, 5], "e": [0, 1, 5]}


def hub(rule: Aggregation) -> Hub:
    ids = {site: {Axis.ENTITY: torch.tensor(owned)} for site, owned in OWNED.items()}
    return Hub(ids, {Axis.ENTITY: 6}, aggregation=rule)


def sent(seed: int, some: bool) -> dict[str, Rows]:
    random = torch.Generator().manual_seed(seed)
    found = {}
    for site, owned in OWNED.items():
        ids = torch.tensor(owned)
        ids = ids[torch.rand(len(ids), generator=random) < 0.7] if some else ids
        found[site] = Rows(ids, torch.randn(len(ids), 3, generator=random))
    found["d"] = replace(found["d"], values=found["d"].values * 1e6)
    return found


@pytest.mark.parametrize("name", list(AGGREGATIONS))
@pytest.mark.parametrize("seed", range(5))
def test_of_some_rows_a_site_is_told_the_aggregate_of_the_others(name: str, seed: int) -> None:
    """Bounded by all that came, the site's own rows too; in numbers that a mean of 1e6 rounds."""
    rule, method, round = AGGREGATIONS[name](), FedE(), sent(seed, some=True)
    at = hub(rule)
    at.sparse = True
    method.aggregate(at, {site: {Axis.ENTITY: of} for site, of in round.items()})
    longest = rule.longest(round)
    for site, owned in OWNED.items():
        told = method.answer(at, site)[Axis.ENTITY]
        others = {other: of for other, of in round.items() if other != site}
        aggregate, owners = rule.combined(others, 6, longest)
        assert told.ids.tolist() == [number for number in owned if owners[number]]
        assert told.support is not None
        assert told.support.tolist() == owners[told.ids].tolist()
        near = 0.5 if name == "mean" else 1e-5
        torch.testing.assert_close(told.values, aggregate[told.ids], rtol=1e-5, atol=near)


@pytest.mark.parametrize("name", list(AGGREGATIONS))
def test_absent_sites_count_with_their_last_rows(name: str) -> None:
    rule, method = AGGREGATIONS[name](), FedE(absent="last")
    at, first, second = hub(rule), sent(0, some=False), sent(1, some=True)
    method.aggregate(at, {site: {Axis.ENTITY: of} for site, of in first.items()})
    at.sparse = True
    method.aggregate(at, {site: {Axis.ENTITY: second[site]} for site in "ab"})
    last = dict(first)
    for site in "ab":
        values = last[site].values.clone()
        values[torch.searchsorted(last[site].ids, second[site].ids)] = second[site].values
        last[site] = Rows(last[site].ids, values)
    aggregate, _ = rule.combined(last, 6)
    for site, owned in OWNED.items():
        assert torch.equal(method.answer(at, site)[Axis.ENTITY].values, aggregate[owned])


def test_pfedeg_weighs_rows_that_were_shortened() -> None:
    at, round = hub(Bounded(limit=0.5)), sent(0, some=False)
    PFedEG(affinity="uniform").aggregate(at, {site: {Axis.ENTITY: of} for site, of in round.items()})
    for site, (values, _) in at.last(Axis.ENTITY).items():
        short = round[site].values.norm(dim=1).clamp_max(0.5)
        torch.testing.assert_close(values.norm(dim=1), short)


# Hostile rows


def hostile(run: Simulated, site: str, value: float = 1e9) -> Simulated:
    """Every number that the site sends is this."""
    node = run.sites[site]
    finish = node.finish

    def lie(round: int, trained: Fitted) -> Message:
        message = finish(round, trained)
        body = {
            name: torch.full_like(t, value) if "values" in name else t for name, t in message.body.items()
        }
        return replace(message, body=body)

    node.finish = lie  # type: ignore[method-assign]
    return run


@pytest.mark.parametrize("method", [{"name": "fedep"}, {"name": "feds", "s": 2}], ids=str)
@pytest.mark.parametrize("name", list(AGGREGATIONS))
def test_a_site_that_sends_huge_rows_cannot_spoil_the_others(
    tmp_path: Path, name: str, method: dict[str, Any]
) -> None:
    options = {"method": method, "aggregate": {"name": name}, "rounds": 5, "trainer": FAST}
    run = hostile(federated(tmp_path / "bad", SITES, **options), "d")
    run.play()
    good = played(tmp_path / "good", SITES, **options)
    longest, usual = (
        max(float(rows(one)[f"now {site} entity"].norm(dim=1).max()) for site in "abc") for one in (run, good)
    )
    assert longest > 1e7 if name == "mean" else longest < 3 * usual


def test_the_whole_configuration_names_it() -> None:
    config = experiment(aggregate={"name": "trimmed", "share": 0.3}).config()
    assert config["aggregate"] == {"name": "trimmed", "factor": 2.0, "share": 0.3}
    assert experiment().aggregate == Mean()
    assert experiment(aggregate={"name": "median"}).aggregate == Median()
    with pytest.raises(ConfigError, match=r"aggregate\.name: no aggregation is named 'medain'; did you mean"):
        experiment(aggregate={"name": "medain"})
    with pytest.raises(ConfigError, match=r"aggregate\.share: expected a number from 0"):
        experiment(aggregate={"name": "trimmed", "share": 0.7})
