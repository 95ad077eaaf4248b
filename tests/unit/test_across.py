"""Triples that one site is measured by and another trains on: counted, told, and left out for all alike."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import answer, fedkge
from fedkge.errors import ConfigError, DataWarning
from fedkge.evaluation import Known
from fedkge.graphs.across import leaks, told, without_leaks
from fedkge.graphs.files import graph_from_names
from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.graphs.links import Link
from fedkge.graphs.unify import unify
from fedkge.methods import METHODS
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.load import load_runs
from fedkge.reports.pages.findings import doubts
from fedkge.reports.pages.holdings import holdings, size_rows
from fedkge.reports.pages.html import write_report
from fedkge.runs.data import Sources
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import Simulation, run
from small_federations import experiment, small_federation

DROP = {"name": "made up", "drop_leaks": "across"}
Named = set[tuple[str, str, str]]


def named(graph: Graph, *splits: str) -> Named:
    return {
        (graph.entities[h], graph.relations[r], graph.entities[t])
        for split in splits
        for h, r, t in graph.split(split).tolist()
    }


def leaking() -> dict[str, Graph]:
    """Sites a and b of three train on some of what others are measured by."""
    own = small_federation(relations_in_common=True)
    found = {}
    for site, graph in own.items():
        others = set().union(*(named(own[o], "valid", "test") for o in own if o != site))
        more = [t for t in sorted(others) if set(t[::2]) <= set(graph.entities)][:3] if site != "c" else []
        ids = [[graph.entities.id(h), graph.relations.id(r), graph.entities.id(t)] for h, r, t in more]
        train = np.concatenate([graph.train, np.array(ids, np.int64).reshape(-1, 3)])
        train = np.unique(train, axis=0)
        asked = named(graph, "valid", "test")
        kept = [
            (graph.entities[h], graph.relations[r], graph.entities[t]) not in asked
            for h, r, t in train.tolist()
        ]
        found[site] = Graph(graph.entities, graph.relations, train[kept], graph.valid, graph.test)
    return found


def by_hand(federation: dict[str, Graph]) -> dict[str, dict[str, int]]:
    """The slow and obvious count."""
    counts = {}
    for site, graph in federation.items():
        others = [other for name, other in federation.items() if name != site]
        trained = set().union(*(named(other, "train") for other in others))
        measured = set().union(*(named(other, "valid", "test") for other in others))
        counts[site] = {
            "valid": len(named(graph, "valid") & trained),
            "test": len(named(graph, "test") & trained),
            "train": len(named(graph, "train") & measured),
        }
    return counts


triples = st.lists(st.tuples(*[st.sampled_from("abcd")] * 3), unique=True, min_size=3, max_size=30)


@given(st.lists(st.tuples(triples, st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4))
def test_counts_and_removal_are_what_sets_say(sites: list[Any]) -> None:
    federation = {}
    for i, (own, valid, test) in enumerate(sites):
        cut = max(1, len(own) - valid - test)
        made = [
            [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in part] for part in (own[:cut], own[cut : cut + valid])
        ]
        rest = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in own[cut + valid :]]
        names = sorted({name for h, _, t in [*made[0], *made[1], *rest] for name in (h, t)})
        relations = sorted({r for _, r, _ in [*made[0], *made[1], *rest]})
        ids = [
            np.array([[names.index(h), relations.index(r), names.index(t)] for h, r, t in part], np.int64)
            for part in (*made, rest)
        ]
        federation[f"s{i}"] = Graph(
            Names(names), Names(relations, Axis.RELATION), *(one.reshape(-1, 3) for one in ids)
        )
    assert {site: one.plain() for site, one in leaks(federation).items()} == by_hand(federation)
    asked = set().union(*(named(graph, "valid", "test") for graph in federation.values()))
    if all(named(graph, "train") - asked for graph in federation.values()):
        kept = without_leaks(federation, federation)
        for site, graph in federation.items():
            assert named(kept[site], "train") == named(graph, "train") - asked
            assert np.array_equal(kept[site].test, graph.test)
            assert np.array_equal(kept[site].valid, graph.valid)
        assert told(leaks(kept), kept) is None


def test_they_are_counted_after_alignment() -> None:
    a = graph_from_names([("x", "r", "y"), ("y", "r", "x")], [("x", "r", "x")], [("y", "r", "y")])
    b = graph_from_names([("u", "r", "u"), ("v", "r", "u")], [("v", "r", "v")], [("u", "r", "v")])
    assert told(leaks({"a": a, "b": b}), {"a": a, "b": b}) is None
    links = [Link(None, "x", None, "u", "links"), Link(None, "y", None, "v", "links")]
    aligned = unify({"a": a, "b": b}, True, {Axis.ENTITY: links}).federation
    found = {site: one.plain() for site, one in leaks(aligned).items()}
    assert found == {
        "a": {"valid": 1, "test": 0, "train": 1},  # (x, r, x) is (u, r, u), (x, r, y) is (u, r, v)
        "b": {"valid": 0, "test": 1, "train": 1},
    }
    assert told(leaks(aligned), aligned) == "1 of 2 test triples and 1 of 2 valid triples"


def test_marks_stay_with_their_triples() -> None:
    a = graph_from_names([("x", "r", "y"), ("y", "r", "x"), ("x", "r", "x")])
    a = Graph(a.entities, a.relations, a.train, confidential=np.array([True, False, True]))
    b = graph_from_names([("x", "r", "z"), ("y", "r", "z")], [], [("x", "r", "y")])
    kept = without_leaks({"a": a}, {"a": a, "b": b})["a"]
    assert kept.confidential is not None
    assert kept.confidential.tolist() == [False, True]
    with pytest.raises(ConfigError, match=r"data.drop_leaks: all training triples of 'b' stand in"):
        without_leaks({"b": b}, {"a": Graph(b.entities, b.relations, b.test, test=b.train), "b": b})


@pytest.mark.parametrize("method", list(METHODS))
def test_no_method_trains_on_them(method: str) -> None:
    graphs = leaking()
    asked = set().union(*(named(graph, "valid", "test") for graph in graphs.values()))
    one = experiment(method={"name": method}, data=DROP)
    members = Sources.of(one, graphs).members(one)
    for member in members.values():
        assert not named(member.graph, "train") & asked
        for site, part in member.parts.items():  # what is measured, and known to be true, stays
            assert named(part.graph, "train", "valid", "test") == named(
                graphs[site], "train", "valid", "test"
            )
            Known.from_graph(part.graph)
    trained = set().union(*(named(member.graph, "train") for member in members.values()))
    assert trained == set().union(*(named(graph, "train") for graph in graphs.values())) - asked


@pytest.mark.parametrize("method", list(METHODS))
def test_without_the_option_all_do_and_are_warned(method: str) -> None:
    graphs = leaking()
    one = experiment(method={"name": method})
    sources = Sources.of(one, graphs)
    if one.method.kind == "alone":
        members = sources.members(one)
    else:
        with pytest.warns(
            DataWarning, match=r"of 18 test triples and \d+ of 18 valid triples stand in the train"
        ):
            members = sources.members(one)
    trained = set().union(*(named(member.graph, "train") for member in members.values()))
    assert trained == set().union(*(named(graph, "train") for graph in graphs.values()))


@pytest.mark.filterwarnings("ignore:.*stand in the train of another site")
def test_runs_and_reports_tell(tmp_path: Path) -> None:
    graphs = leaking()
    folders = {}
    for name, data in {"with": {}, "without": DROP}.items():
        one = experiment(method={"name": "fedep"}, rounds=1, evaluate={"every": 1}, data=data)
        folders[name] = tmp_path / name
        run(one, RunFolder.create(folders[name], one, False), _cpu(), graphs, how=Simulation())
    for name, folder in folders.items():
        summary = json.loads((folder / "summary.json").read_text())
        found = by_hand(graphs)
        assert {site: of["leaks"] for site, of in summary["sites"].items()} == found
        left = {site: of["train"] if name == "without" else 0 for site, of in found.items()}
        assert any(left.values()) is (name == "without")
        for site, of in summary["sites"].items():
            assert of["triples"]["train"] == len(graphs[site].train), "what the site has"
            assert of["trained"] == len(graphs[site].train) - left[site]
        total = {split: sum(of[split] for of in found.values()) for split in ("valid", "test")}
        assert summary["leaks"] == {"dropped": name == "without", **total}
        events = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
        (told_,) = [event for event in events if event["event"] == "leaks"]
        assert told_["dropped"] is (name == "without")
        assert told_["sites"] == {site: of for site, of in found.items() if any(of.values())}

    def said(*names: str) -> list[str]:
        groups = experiments(load_runs([folders[name] for name in names]))
        return [text for text in doubts(groups) if "train of another site" in text]

    assert "data.drop_leaks = 'across' leaves them out" in said("with")[0]
    assert "were left out of train" in said("without")[0]
    assert "not comparable" in said("with", "without")[0]

    def trained(*names: str) -> list[list[int]]:
        runs = load_runs([folders[name] for name in names])
        assert ("Trained on" in holdings(Canvas(), runs)) is ("without" in names)
        return [row["trained"] for row in size_rows(runs)]

    every = [len(graph.train) for graph in graphs.values()]
    kept = [count - of["train"] for count, of in zip(every, by_hand(graphs).values(), strict=True)]
    assert trained("with") == [[count] for count in every]
    assert trained("without") == [[count] for count in kept]
    assert trained("with", "without") == [sorted({*pair}) for pair in zip(every, kept, strict=True)]
    page = tmp_path / "page.html"
    write_report(load_runs([folders["without"]]), page)
    assert f"{sum(kept)} training triples" in page.read_text()


@pytest.mark.filterwarnings("ignore:.*stand in the train of another site")
def test_pooled_graphs_tell_how_many_triples_all_have(tmp_path: Path) -> None:
    graphs = leaking()
    one = experiment(method={"name": "collective"}, rounds=1, evaluate={"every": 1}, data=DROP)
    folder = RunFolder.create(tmp_path / "run", one, False)
    summary = run(one, folder, _cpu(), graphs, how=Simulation())
    (member,) = Sources.of(one, graphs).members(one).values()
    assert {of["trained"] for of in summary["sites"].values()} == {len(member.graph.train)}
    assert {row["trained"] for row in size_rows(load_runs([tmp_path / "run"]))} == {None}


def test_commands_count_them(tmp_path: Path) -> None:
    """`data stats` by name, `data align` after alignment."""
    for site, prefix in {"a": "", "b": "x"}.items():
        (tmp_path / "sites" / site).mkdir(parents=True)
        lines = {
            "train": ("1 2", "2 1") if site == "a" else ("1 1", "2 2"),
            "valid": ("1 1",),
            "test": ("2 2",),
        }
        if site == "b":
            lines |= {"valid": ("1 2",), "test": ("2 1",)}
        for split, pairs in lines.items():
            text = "".join(f"{prefix}{h}\tr\t{prefix}{t}\n" for h, t in map(str.split, pairs))
            (tmp_path / "sites" / site / f"{split}.tsv").write_text(text)
    (tmp_path / "links.tsv").write_text("1\tx1\n2\tx2\n")
    (found,) = answer("data", "stats", tmp_path / "sites")
    assert found["valid_elsewhere_trained"] == found["test_elsewhere_trained"] == 0
    aligned = answer("data", "align", tmp_path / "sites", "--entities", tmp_path / "links.tsv")
    assert aligned["leaks"] == {key: {"valid": 1, "test": 1, "train": 2} for key in "ab"}
    shown = fedkge("data", "align", tmp_path / "sites", "--entities", tmp_path / "links.tsv").stdout
    assert "2 of 2 test triples and 2 of 2 valid triples stand in the train of another site" in shown
    for path in (tmp_path / "sites" / "b").iterdir():
        path.write_text(path.read_text().replace("x", ""))
    (found,) = answer("data", "stats", tmp_path / "sites")
    assert [site["test_elsewhere_trained"] for site in found["sites"]] == [1, 1]
    assert found["valid_elsewhere_trained"] == 2
    shown = fedkge("data", "stats", tmp_path / "sites").stdout
    assert "2 of 2 test triples and 2 of 2 valid triples stand in the train of another site" in shown


def _cpu() -> Any:
    import torch

    return torch.device("cpu")


@pytest.mark.slow
@pytest.mark.skipif("FEDKGE_DATA" not in os.environ, reason="needs FEDKGE_DATA")
@pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")
def test_about_half_of_ddb14_t5() -> None:
    from fedkge.graphs.datasets import load

    federation = load("ddb14-T5")
    found = leaks(federation)
    assert told(found, federation) == "1,301 of 2,406 test triples and 1,333 of 2,559 valid triples"
    assert {site: one.plain() for site, one in found.items()} == by_hand(dict(federation))
