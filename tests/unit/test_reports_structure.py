"""What pages say of how sites are knit, of entities in a plane, and of the other tables of a method."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.errors import DataError
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.compared.tables import seed_rows
from fedkge.reports.drawing.curves import view_figure
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.drawing.tsne import placed, plane_figure, planes, site_figure
from fedkge.reports.folders.load import load_run, load_runs
from fedkge.reports.pages.holdings import (
    clustering_figure,
    degree_figure,
    holdings,
    structure,
    structure_rows,
)
from fedkge.reports.pages.sections import Shown, sections
from run_folders import SITES, write_run, write_tables

DEGREES = {"degrees": [[1, 6], [3, 3], [10, 1]], "coefficients": [5, 0, 3, 2]}


# Degrees and clustering


def test_degrees_are_the_share_of_entities_with_as_many_or_more() -> None:
    (trace,) = degree_figure({"a": DEGREES}).data
    assert (trace["x"], trace["y"]) == ([1, 3, 10], [1.0, 0.4, 0.1])


def test_entities_in_no_triple_count_and_are_not_drawn() -> None:
    (trace,) = degree_figure({"a": {"degrees": [[0, 10], [1, 10]]}}).data
    assert (trace["x"], trace["y"]) == ([1], [0.5])  # a logarithm of 0 has no place


def test_clustering_is_the_share_of_entities_below() -> None:
    (trace,) = clustering_figure({"a": DEGREES, "too large": {"coefficients": None}}).data
    assert (trace["x"], trace["y"]) == ([0.25, 0.5, 0.75, 1.0], [0.5, 0.5, 0.8, 1.0])


def test_rows_say_mean_median_and_largest(tmp_path: Path) -> None:
    rows = structure_rows(load_run(write_run(tmp_path / "run")))
    assert [row["site"] for row in rows] == list(SITES)
    assert [row["median_degree"] for row in rows] == [1, 1, 1, 1]  # 92 of 183 entities are half
    assert (rows[1]["mean_degree"], rows[1]["most_degree"], rows[1]["clustering"]) == (3.5, 91, 0.2 + 0.1)


def test_they_are_shown_once_for_each_data_set(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, name) for name in ("single", "fede")]
    runs.append(write_run(tmp_path / "other", data="umls"))
    page = Canvas()
    html = holdings(page, load_runs(runs))
    titles = [figure.title for figure in page.figures.values()]
    assert titles.count("Degrees") == titles.count("Clustering coefficients") == 2
    assert html.count(": how sites are knit, over all triples.</figcaption>") == 2


def test_of_many_sites_the_largest_are_drawn(tmp_path: Path) -> None:
    page = Canvas()
    html = structure(page, load_run(write_run(tmp_path / "run", sites=[f"s{i}" for i in range(20)])))
    assert "Of 20 sites the 16 largest are drawn" in html
    (degrees, clustering) = page.figures.values()
    assert [t["name"] for t in degrees.data] == [t["name"] for t in clustering.data]
    assert [t["name"] for t in degrees.data] == [f"s{i}" for i in range(4, 20)]


def test_runs_of_before_have_none(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    for site in summary["sites"].values():
        del site["structure"]
    (folder / "summary.json").write_text(json.dumps(summary))
    page = Canvas()
    assert structure(page, load_run(folder)) == ""
    assert not page.figures


# Entities in a plane


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Sites with 10, 20, 30 and 40 entities, of which `e0` ... are at all sites that are large enough."""
    folder = write_run(tmp_path / "run", "fede")
    sizes = {site: 10 * (i + 1) for i, site in enumerate(SITES)}
    return write_tables(folder, {site: [f"e{i}" for i in range(n)] for site, n in sizes.items()})


def test_every_entity_has_a_place_and_shared_ones_are_known(run: Path) -> None:
    pytest.importorskip("sklearn")
    found = placed(load_run(run))
    assert [len(of.names) for of in found.values()] == [10, 20, 30, 40]
    assert all(of.at.shape == (len(of.names), 2) and np.isfinite(of.at).all() for of in found.values())
    last = found[SITES[-1]]
    assert [name for name, shared in zip(last.names, last.shared, strict=True) if not shared] == [
        f"e{i}" for i in range(30, 40)
    ]
    again = placed(load_run(run))
    assert all(np.array_equal(of.at, again[site].at) for site, of in found.items())


def test_of_many_the_same_few_are_shown_at_all_sites(run: Path) -> None:
    pytest.importorskip("sklearn")
    found = placed(load_run(run), most=50)
    assert [len(of.names) for of in found.values()] == [5, 10, 15, 20]
    everywhere = set(found[SITES[0]].names)
    large = set(found[SITES[-1]].names)
    assert len(everywhere & large) >= 4  # by chance it would be 2 or 3


def test_alike_rows_are_neighbours(tmp_path: Path) -> None:
    """Two heaps far from each other stay two heaps."""
    pytest.importorskip("sklearn")
    from safetensors.numpy import save

    folder = write_run(tmp_path / "run", "fede", sites=["a"])
    write_tables(folder, {"a": [f"e{i}" for i in range(60)]})
    rows = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    rows[30:] += 100
    (folder / "sites" / "a" / "entities.safetensors").write_bytes(save({"rows": rows}))
    at = placed(load_run(folder))["a"].at
    one, other = at[:30].mean(0), at[30:].mean(0)
    nearer = np.linalg.norm(at - one, axis=1) < np.linalg.norm(at - other, axis=1)
    assert nearer.tolist() == [True] * 30 + [False] * 30


def test_a_colour_for_each_site_and_one_for_what_is_shared(run: Path) -> None:
    pytest.importorskip("sklearn")
    found = placed(load_run(run))
    figure = plane_figure(found, "fede")
    assert figure.title == "fede: 100 entities, by site"
    assert len({trace["meta"]["series"] for trace in figure.data}) == 4
    own, shared = site_figure(SITES[-1], found).data
    assert (len(own["x"]), len(shared["x"])) == (10, 30)
    assert own["meta"]["series"] != shared["meta"]["series"]


def test_the_plane_is_drawn_only_when_asked_for(run: Path) -> None:
    pytest.importorskip("sklearn")
    runs = load_runs([run])
    page = Canvas()
    assert "Entities in a plane" not in sections(runs, page)
    before = len(page.figures)
    page = Canvas()
    assert "Entities in a plane" in sections(runs, page, Shown(tsne=True))
    assert len(page.figures) == before + 1 + 4


def test_without_scikit_learn_the_page_says_what_to_install(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    html = planes(Canvas(), experiments(load_runs([run])))
    assert "needs scikit-learn, which is not installed; pip install" in html


@pytest.mark.parametrize("broken", ["missing", "short", "nonsense", "few"])
def test_tables_that_cannot_be_right(run: Path, broken: str) -> None:
    pytest.importorskip("sklearn")
    folder = run / "sites" / SITES[0]
    if broken == "missing":
        (folder / "entities.tsv").unlink()
    elif broken == "short":
        (folder / "entities.tsv").write_text("e0\n")
    elif broken == "nonsense":
        (folder / "entities.safetensors").write_bytes(b"?")
    else:
        write_tables(run, {site: [] for site in SITES})
    match = {"missing": "no such file", "short": "10 rows, expected 1", "nonsense": "cannot be read"}
    with pytest.raises(DataError, match=match.get(broken, "a plane needs at least 4")):
        placed(load_run(run))


# Other tables of a method


def with_views(folder: Path, views: dict[str, float]) -> Path:
    """A run whose journal and summary have what FedLU's have."""
    write_run(folder, "fedlu")
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    for event in lines:
        if event["event"] == "evaluate":
            event["views"] = {"global": event["mrr"] - 0.1}
    (folder / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = json.loads((folder / "summary.json").read_text())
    for of in (summary, *summary["sites"].values()):
        for view, less in views.items():
            for end in ("", "_head", "_tail"):
                metrics: dict[str, Any] = dict(of["metrics"]["test"])
                metrics["mrr"] -= less
                of["metrics"][f"test_{view}{end}"] = metrics
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_other_tables_have_a_line_and_a_column(tmp_path: Path) -> None:
    loaded = load_run(with_views(tmp_path / "run", {"global": 0.1, "hub": 0.2}))
    for row in seed_rows([loaded]):
        assert row["global_mrr"] == pytest.approx(row["mrr"] - 0.1)
        assert row["hub_mrr"] == pytest.approx(row["mrr"] - 0.2)
        assert not any(re.search("(head|tail)_mrr", key) for key in row)
    figure = view_figure(experiments([loaded]))
    assert figure is not None
    local, other = (trace for trace in figure.data if trace["mode"] == "lines")
    assert (local["name"], other["name"]) == ("fedlu, local", "fedlu, global")
    assert local["x"] == other["x"]
    assert other["y"] == pytest.approx([y - 0.1 for y in local["y"]])
    page = Canvas()
    sections([loaded], page)
    assert sum(f.title.startswith("Validation MRR by table") for f in page.figures.values()) == 1


def test_a_method_with_one_table_has_no_such_plot(tmp_path: Path) -> None:
    assert view_figure(experiments([load_run(write_run(tmp_path / "run", "fede"))])) is None
