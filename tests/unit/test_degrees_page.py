"""docs/degrees.md: numbers against networkx and scipy; page and pictures are what its file makes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fedkge.graphs.datasets import load
from fedkge.graphs.graph import Axis, Graph, Names

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
needs_graphs = pytest.mark.skipif("FEDKGE_DATA" not in os.environ, reason="FEDKGE_DATA is not set")


@pytest.fixture(scope="module")
def degrees(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("degrees")


@pytest.fixture(scope="module")
def written(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("degrees_page")


@pytest.fixture(scope="module")
def kept() -> Any:
    return json.loads((DOCS / "degrees.json").read_text())


def test_the_page_and_its_pictures_are_what_the_file_makes(
    degrees: ModuleType, written: ModuleType, kept: Any
) -> None:
    assert written.page(kept) == (DOCS / "degrees.md").read_text()
    drawn = written.pictures(kept)
    assert drawn == {path.name: path.read_text() for path in DOCS.glob("degrees-*.svg")}
    assert degrees.written(kept) == (DOCS / "degrees.json").read_text()


def test_lines_stay_within_their_axes(written: ModuleType, kept: Any) -> None:
    for name, svg in written.pictures(kept).items():
        panels = svg.split('<g transform="translate(')[1:]
        drawn = [panel for panel in panels if "<polyline" in panel]
        lines = [points for panel in drawn for points in re.findall(r'<polyline points="([^"]*)"', panel)]
        assert len(lines) == sum(len(kept[of]["sites"]) for of in written.FIGURES[figure_of(name)]), name
        ends = [tuple(map(float, point.split(","))) for line in lines for point in line.split()]
        assert all(0 < x < 410 and 30 < y < 400 for x, y in ends), name


def figure_of(name: str) -> str:
    return "Figure 3" if "c3" in name else "Figure 6"


def site(prefix: str, entities: int, triples: int, seed: int) -> Graph:
    random = np.random.default_rng(seed)
    ends = np.minimum(random.geometric(0.1, (triples, 2)) - 1, entities - 1)
    every = np.insert(ends, 1, random.integers(0, 3, triples), axis=1)
    names = Names([f"{prefix}{i}" for i in range(entities)])
    return Graph(names, Names(["r", "s", "t"], Axis.RELATION), *np.split(every, [triples // 2, triples - 9]))


def slow(graph: Graph) -> tuple[dict[int, int], float, float]:
    """By networkx: how many entities have which degree, the mean degree, the mean clustering coefficient."""
    networkx = pytest.importorskip("networkx")
    multiple = networkx.MultiGraph((h, t) for h, _, t in graph.all().tolist())
    multiple.add_nodes_from(range(graph.n_entities))
    found = dict(multiple.degree())
    plain = networkx.Graph(multiple)
    plain.remove_edges_from(list(networkx.selfloop_edges(plain)))
    counts = {degree: list(found.values()).count(degree) for degree in set(found.values())}
    return counts, sum(found.values()) / len(found), networkx.average_clustering(plain)


def test_measures_of_a_federation(degrees: ModuleType) -> None:
    federation = {"a": site("x", 60, 200, 0), "b": site("x", 40, 90, 1), "c": site("y", 30, 50, 2)}
    found = degrees.measured(federation)
    assert found["shared_by_a_pair"] == 40 / 3  # of the three pairs, one shares 40 names
    for name, graph in federation.items():
        counts, mean, clustering = slow(graph)
        of = found["sites"][name]
        assert (of["triples"], of["entities"]) == (len(graph.all()), graph.n_entities)
        assert dict(of["degrees"]) == counts
        assert of["mean_degree"] == pytest.approx(mean)
        assert of["mean_clustering"] == pytest.approx(clustering)


def test_distance_and_median_are_those_of_scipy(written: ModuleType) -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(3)
    for shift in (0, 2, 500):
        one, other = random.geometric(0.1, 301), random.geometric(0.05, 200) + shift
        lists = [np.stack(np.unique(of, return_counts=True), axis=1).tolist() for of in (one, other)]
        assert written.distance(*lists) == pytest.approx(stats.ks_2samp(one, other).statistic)
        assert written.quantile(lists[0], 0.5) == np.median(one)


def test_a_claim_that_does_not_hold_is_told(written: ModuleType, kept: Any) -> None:
    other = kept | {"C3": kept["R3"], "R3": kept["C3"]}
    told = [line for line in written.page(other).splitlines() if "| Figure 3 |" in line]
    assert len(told) == 8
    assert all(line.endswith("| no |") for line in told)


@needs_graphs
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")
@pytest.mark.parametrize("name", ["C3", "R3", "C10", "R10"])
def test_what_is_kept_is_measured_again(degrees: ModuleType, kept: Any, name: str) -> None:
    federation = load(f"fb15k-237-{name}")
    assert json.loads(json.dumps(degrees.measured(federation))) == kept[name]
    smallest = min(federation, key=lambda one: len(federation[one].all()))
    counts, mean, clustering = slow(federation[smallest])
    of = kept[name]["sites"][smallest]
    assert dict(of["degrees"]) == counts
    assert (of["mean_degree"], of["mean_clustering"]) == pytest.approx((mean, clustering))
