"""A warm start: rows come by name, what came is kept unless training betters it, and it is told."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedkge.audits.pairs import Replay
from fedkge.config import override, read_toml, to_toml
from fedkge.errors import ConfigError, DataWarning
from fedkge.graphs.graph import Axis, Federation, Graph, Names, Split
from fedkge.graphs.unify import Unified
from fedkge.reports.folders.load import events
from fedkge.runs.data import Sources
from fedkge.runs.folder import RunFolder
from fedkge.runs.start import Start
from fedkge.runtimes.run import Progress, Simulation, run
from small_federations import (
    assert_same,
    differ,
    experiment,
    federated,
    played,
    rows,
    small_federation,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*stand in the train of another site")

SITES = small_federation(relations_in_common=True)
LEARNT = {site: replace(graph, valid=graph.train[:12]) for site, graph in SITES.items()}  # what is trained on
WILD = {"lr": 10.0}  # after which nothing is left of what was learnt
CPU = torch.device("cpu")
METHODS: list[dict[str, Any]] = [
    {"name": "single"},
    {"name": "fede"},
    {"name": "feds"},
    {"name": "fedlu", "when": "plateau"},
    {"name": "pfedeg"},
    {"name": "fedkd", "small": 4},
]


def finished(path: Path, federation: Federation = SITES, **changes: Any) -> dict[str, Any]:
    """A run, as `fedkge run` leaves it; its summary."""
    one = experiment(**changes)
    return run(one, RunFolder.create(path, one, resume=False), CPU, federation)


def journal(path: Path, event: str) -> list[dict[str, Any]]:
    return [one for one in events(path) if one["event"] == event]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("before") / "fedep"
    finished(path, method={"name": "fedep"}, rounds=6)
    return path


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that validates far better than chance."""
    path = tmp_path_factory.mktemp("learnt") / "fedep"
    summary = finished(path, LEARNT, method={"name": "fedep"}, rounds=20, trainer={"lr": 0.05})
    assert min(of["metrics"]["valid"]["mrr"] for of in summary["sites"].values()) > 0.3
    return path


def kept(path: Path, site: str, axis: Axis) -> torch.Tensor:
    return RunFolder.open(path).load_site(site)[0].table(axis)


# What sites begin with


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method["name"])
def test_sites_begin_with_what_was_kept(tmp_path: Path, before: Path, method: dict[str, Any]) -> None:
    warm = federated(tmp_path / "warm", SITES, method=method, start=str(before))
    cold = federated(tmp_path / "cold", SITES, method=method)
    for (site, of), other in zip(warm.stack_of.items(), cold.stack_of.values(), strict=True):
        for axis in Axis:
            expected = kept(before, site, axis)
            assert torch.equal(of.sites[site].tables.table(axis), expected)
            assert torch.equal(of.bests[site].table(axis), expected)
            assert not torch.equal(expected, other.sites[site].tables.table(axis))
        own, usual = of.sites[site].tables.second, other.sites[site].tables.second
        if own is not None and usual is not None:
            same = method["name"] == "fedlu"  # of the same model; fedkd's is smaller
            assert torch.equal(own.entities, kept(before, site, Axis.ENTITY) if same else usual.entities)
    assert journal(tmp_path / "warm", "warm_start")[0]["missing"] == {}


def permuted(graph: Graph, seed: int) -> Graph:
    """The same triples under other ids."""
    random = np.random.default_rng(seed)
    e, r = random.permutation(graph.n_entities), random.permutation(graph.n_relations)  # new id of each

    def moved(triples: np.ndarray) -> np.ndarray:
        return np.stack((e[triples[:, 0]], r[triples[:, 1]], e[triples[:, 2]]), axis=1)

    return Graph(
        Names([graph.entities[i] for i in np.argsort(e).tolist()]),
        Names([graph.relations[i] for i in np.argsort(r).tolist()], Axis.RELATION),
        *(moved(triples) for triples in graph.splits().values()),
    )


def test_rows_are_found_by_name_and_not_by_place(tmp_path: Path, before: Path) -> None:
    others = {site: permuted(graph, i) for i, (site, graph) in enumerate(reversed(SITES.items()))}
    with pytest.warns(DataWarning, match="had other triples"):
        warm = federated(tmp_path, others, start=str(before))
    for site, graph in others.items():
        tables, entities, relations = RunFolder.open(before).load_site(site)
        for axis, now, then in (
            (Axis.ENTITY, graph.entities, entities),
            (Axis.RELATION, graph.relations, relations),
        ):
            found = warm.stack_of[site].sites[site].tables.table(axis)
            for place, name in enumerate(now):
                assert torch.equal(found[place], tables.table(axis)[then.id(name)])
    found = warm.sites["a"].learner.measure(warm.sites["a"].best, Split.TEST)["a"]["both"]["mrr"]
    assert found == pytest.approx(RunFolder.open(before).summary()["sites"]["a"]["metrics"]["test"]["mrr"])


def test_new_names_keep_their_first_rows_and_are_counted(tmp_path: Path, before: Path) -> None:
    graph = SITES["a"]
    more = replace(
        graph,
        entities=Names(["new", *graph.entities]),
        relations=Names([*graph.relations, "new too", "and new"], Axis.RELATION),
        **{split: triples + np.array([1, 0, 1]) for split, triples in graph.splits().items()},
    )
    grown = {**SITES, "a": more}
    with pytest.warns(DataWarning) as said:
        warm = federated(tmp_path / "warm", grown, start=str(before))
    assert any("1 entity names and 2 relation names of site 'a'" in str(one.message) for one in said)
    (event,) = journal(tmp_path / "warm", "warm_start")
    assert event["missing"] == {"a": {"entity": 1, "relation": 2}}
    cold = rows(federated(tmp_path / "cold", grown))
    found = rows(warm)["now a entity"]
    assert torch.equal(found[0], cold["now a entity"][0])
    assert torch.equal(found[1:], kept(before, "a", Axis.ENTITY))
    assert torch.equal(rows(warm)["now a relation"][3:], cold["now a relation"][3:])


def test_names_are_the_sites_own_whatever_links_call_them(tmp_path: Path, before: Path) -> None:
    summary = finished(tmp_path / "after", start=str(before), align={"names": False}, rounds=1)
    assert summary["start"]["missing"] == {}


def test_of_several_seeds_the_one_of_this_run(tmp_path: Path, before: Path) -> None:
    for seed in (0, 3):
        finished(tmp_path / f"seed-{seed}", seed=seed, rounds=1)
    for seed in (0, 3):
        warm = federated(tmp_path / f"warm {seed}", SITES, start=str(tmp_path), seed=seed)
        assert torch.equal(rows(warm)["now b entity"], kept(tmp_path / f"seed-{seed}", "b", Axis.ENTITY))
    with pytest.raises(ConfigError, match=r"not a run folder.* seed-1"):
        federated(tmp_path / "warm 1", SITES, start=str(tmp_path), seed=1)


# What cannot be gone on from


def broken(path: Path, before: Path, what: str) -> Path:
    copy = path / "copy"
    shutil.copytree(before, copy)
    if what == "unfinished":
        (copy / "summary.json").unlink()
    if what == "a site":
        shutil.rmtree(copy / "sites" / "b")
    return copy


@pytest.mark.parametrize(
    ("what", "changes", "message"),
    [
        ("unfinished", {}, "the run has not ended"),
        ("a site", {}, r"no tables of site 'b' .*known: a, c"),
        ("model", {"model": {"name": "distmult"}}, r"tables of transe \(dim = 8.* trains distmult \(dim = 8"),
        ("width", {"model": {"dim": 9}}, r"tables of transe \(dim = 8.* trains transe \(dim = 9"),
        ("method", {"method": {"name": "collective"}}, "one table for several sites"),
        ("gone", {"start": "nowhere"}, "nowhere: not a run folder"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*left out of the pooled train")
def test_what_cannot_be_gone_on_from(
    tmp_path: Path, before: Path, what: str, changes: dict[str, Any], message: str
) -> None:
    given = {"start": str(broken(tmp_path, before, what)), **changes}
    with pytest.raises(ConfigError, match=f"^start: .*{message}"):
        finished(tmp_path / "after", **given)
    assert not (tmp_path / "after").exists(), "a run that is refused leaves no folder"


def test_a_site_of_which_nothing_is_known(tmp_path: Path, before: Path) -> None:
    strange = replace(SITES["c"], entities=Names([f"x{i}" for i in range(SITES["c"].n_entities)]))
    with pytest.raises(ConfigError, match=r"none of the 14 entities of site 'c' .*'e10', here is 'x0'"):
        federated(tmp_path / "after", {**SITES, "c": strange}, start=str(before))


@pytest.mark.parametrize("mode", ["strict", "fulldp", "u-only"])
def test_a_private_run_starts_from_nothing(before: Path, mode: str) -> None:
    noisy = {} if mode == "u-only" else {"noise": 1.0, "delta": 1e-5}
    with pytest.raises(ConfigError, match=f"^start: with privacy.mode '{mode}'.*ledger"):
        experiment(start=str(before), privacy={"mode": mode, **noisy})


def test_a_run_that_goes_on_from_a_private_one_is_not_private(tmp_path: Path, before: Path) -> None:
    copy = broken(tmp_path, before, "")
    config = override(read_toml(copy / "config.toml"), ["privacy.mode=u-only"])
    (copy / "config.toml").write_text(to_toml(config))
    with pytest.warns(DataWarning, match="'u-only', this run has none: its tables are protected by nothing"):
        summary = finished(tmp_path / "after", start=str(copy), rounds=1)
    assert summary["privacy"] == []
    assert summary["start"]["privacy"] == "u-only"


# What is kept


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method["name"])
def test_what_came_is_kept_where_training_makes_it_worse(
    tmp_path: Path, learnt: Path, method: dict[str, Any]
) -> None:
    summary = finished(tmp_path / "after", LEARNT, method=method, start=str(learnt), trainer=WILD)
    old = RunFolder.open(learnt).summary()
    assert {course["best_round"] for course in summary["courses"].values()} == {0}
    for site in LEARNT:
        assert summary["sites"][site]["metrics"]["test"] == old["sites"][site]["metrics"]["test"]
        for axis in Axis:
            assert torch.equal(kept(tmp_path / "after", site, axis), kept(learnt, site, axis))
    first, *others = journal(tmp_path / "after", "evaluate")
    assert [first["round"], *(event["round"] for event in others)] == [0, 2, 4]
    assert {site: m["mrr"] for site, m in first["sites"].items()} == {
        site: of["metrics"]["valid"]["mrr"] for site, of in old["sites"].items()
    }


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method["name"])
def test_each_site_keeps_its_own_best(tmp_path: Path, before: Path, method: dict[str, Any]) -> None:
    """Where sites stop together they may too: nobody's validation ends below what it came with."""
    evaluate = {"every": 1, "patience": 0, "keep": "each"}
    summary = finished(tmp_path / "after", method=method, start=str(before), rounds=9, evaluate=evaluate)
    found = journal(tmp_path / "after", "evaluate")
    assert [event["round"] for event in found] == list(range(10))
    for site, course in summary["courses"].items():
        curve = [event["sites"][site]["mrr"] for event in found]
        assert course["best_round"] == curve.index(max(curve))
        assert summary["sites"][site]["metrics"]["valid"]["mrr"] == max(curve)
    assert any(course["best_round"] > 0 for course in summary["courses"].values())


@pytest.mark.parametrize("method", [{"name": "fedep"}, {"name": "single"}], ids=lambda method: method["name"])
def test_what_came_is_replaced_only_by_what_is_surely_better(
    tmp_path: Path, before: Path, method: dict[str, Any]
) -> None:
    """The best of the rounds that gain enough, by each site's own number of questions."""
    evaluate = {"every": 1, "patience": 0, "keep": "each", "sure": 0.15}
    summary = finished(tmp_path / "after", method=method, start=str(before), rounds=9, evaluate=evaluate)
    found, expected = journal(tmp_path / "after", "evaluate"), {}
    for site in summary["courses"]:
        curve = [event["sites"][site]["mrr"] for event in found]
        least = curve[0] + 0.15 / summary["sites"][site]["metrics"]["valid"]["count"] ** 0.5
        expected[site] = curve.index(max(curve)) if max(curve) > least else 0
    assert {site: course["best_round"] for site, course in summary["courses"].items()} == expected
    assert len(set(expected.values()) & {0}) == 1 < len(set(expected.values()))


def test_patience_counts_from_the_tables_as_they_came(tmp_path: Path, learnt: Path) -> None:
    evaluate = {"every": 2, "patience": 2}
    summary = finished(
        tmp_path / "after", LEARNT, start=str(learnt), rounds=30, evaluate=evaluate, trainer=WILD
    )
    assert {(c["rounds"], c["best_round"]) for c in summary["courses"].values()} == {(4, 0)}


# What a start must not change


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method["name"])
def test_stacked_is_site_by_site(tmp_path: Path, before: Path, method: dict[str, Any]) -> None:
    options = {"method": method, "start": str(before), "evaluate": {"every": 1}}
    alone = played(tmp_path / "alone", SITES, how=Simulation(stacked=False), **options)
    stacked = played(tmp_path / "stacked", SITES, **options)
    assert (len(alone.stacks), len(stacked.stacks)) == (3, 1)
    assert_same(alone, stacked)
    assert differ(stacked, played(tmp_path / "cold", SITES, method=method, evaluate={"every": 1}))


class Stopped(Exception):
    pass


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("method", METHODS[:4], ids=lambda method: method["name"])
def test_it_goes_on_without_what_it_started_from(
    tmp_path: Path, before: Path, method: dict[str, Any], after: int
) -> None:
    start = tmp_path / "before"
    shutil.copytree(before, start)
    options = {"method": method, "start": str(start), "codec": {"name": "float16"}, "rounds": 4}
    whole = played(tmp_path / "whole", SITES, **options)

    def stop(progress: Progress) -> None:
        if progress.round == after + 1:
            raise Stopped

    with pytest.raises(Stopped):
        federated(tmp_path / "broken", SITES, how=Simulation(save_every=0), watch=stop, **options).play()
    shutil.rmtree(start)
    resumed = federated(tmp_path / "broken", SITES, **options)
    assert resumed.hub.round == after
    resumed.play()
    assert_same(whole, resumed)
    assert resumed.start == whole.start
    assert resumed.record.tally.summary() == whole.record.tally.summary()
    assert resumed.hub.validation.stopping == whole.hub.validation.stopping


def test_killed_before_its_first_checkpoint_it_needs_its_start(tmp_path: Path, before: Path) -> None:
    federated(tmp_path / "broken", SITES, start=str(before))
    resumed = played(tmp_path / "broken", SITES, start=str(before))
    assert_same(resumed, played(tmp_path / "whole", SITES, start=str(before)))


# What is told


def test_the_summary_says_what_was_spent_before(tmp_path: Path, before: Path) -> None:
    first = finished(tmp_path / "first", start=str(before), rounds=2)
    second = finished(tmp_path / "second", start=str(tmp_path / "first"), rounds=2)
    old = RunFolder.open(before).summary()
    sent = old["traffic"]["up_bytes"] + old["traffic"]["down_bytes"]
    assert (first["start"]["method"], first["start"]["rounds"], first["start"]["epochs"]) == ("fedep", 6, 2)
    assert first["start"]["bytes"] == sent > 0
    assert second["start"] == {
        "run": str(tmp_path / "first"),
        "method": "single",
        "kind": "alone",
        "rounds": 2,
        "best_round": first["best_round"],
        "epochs": 2,
        "bytes": 0,
        "privacy": "off",
        "missing": {},
        "start": first["start"],
    }
    assert "start" not in old
    config = read_toml(tmp_path / "first" / "config.toml")
    assert config["start"] == str(before)
    assert "start" not in read_toml(before / "config.toml")
    opened = Start.open(RunFolder.open(tmp_path / "second").experiment(), SITES)
    assert opened.plain() == second["start"]


def test_an_attack_replays_what_sites_began_with(tmp_path: Path, before: Path) -> None:
    """Rows are found by their own names too where links have given them others."""
    one = experiment(method={"name": "fede"}, start=str(before), rounds=3)
    renamed = {
        site: replace(graph, entities=Names([f"as {name}" for name in graph.entities]))
        for site, graph in SITES.items()
    }
    folder = RunFolder.create(tmp_path / "replay", one, resume=False)
    replay = Replay(one, Sources(SITES, Unified(renamed, ())), folder, 1)
    assert torch.equal(rows(replay.run)["now a entity"], kept(before, "a", Axis.ENTITY))
    replay.play()
    _, found, _ = replay.found(Axis.ENTITY)
    assert len(found)
    assert found.max() < 1e-4
