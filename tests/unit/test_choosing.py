"""Points are chosen by validation, among those that answer the same question; test stays out of sight."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.config import as_variants, read_toml, to_toml, variants
from fedkge.reports.compared.choosing import best_config, best_groups, hides, revealed
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.load import load_runs
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.html import render
from fedkge.reports.pages.sections import Shown, sections
from fedkge.reports.pages.sweep_section import sweep_rows
from run_folders import write_run, write_sweep

MU = {"0": 0.33, "0.1": 0.36, "1": 0.31}


def judged(folder: Path, valid: float, test: float) -> None:
    """Say of a run what it reached."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    summary["metrics"]["valid"]["mrr"], summary["metrics"]["test"]["mrr"] = valid, test
    path.write_text(json.dumps(summary))


def sweep(folder: Path) -> list[Run]:
    """Of three points, validation and test name different ones."""
    write_sweep(folder, "fedprox", "method.mu", MU)
    for mu, (valid, test) in {"0": (0.30, 0.61), "0.1": (0.34, 0.52), "1": (0.32, 0.73)}.items():
        judged(folder / f"method.mu={mu}", valid, test)
    return load_runs([folder])


def test_validation_chooses_and_test_does_not(tmp_path: Path) -> None:
    runs = sweep(tmp_path)
    rows = {row["method.mu"]: row for row in sweep_rows(runs)}
    assert [mu for mu, row in rows.items() if row["best"]] == [0.1]
    assert [row["valid_mrr"] for row in rows.values()] == [0.30, 0.34, 0.32]
    assert [row["mrr"] for row in rows.values()] == [None, 0.52, None]
    assert [row["hits@10"] is None for row in rows.values()] == [True, False, True]
    assert [row["mrr"] for row in sweep_rows(runs, show_test=True)] == [0.61, 0.52, 0.73]
    config = best_config(runs)
    assert config == read_toml(tmp_path / "method.mu=0.1" / "config.toml")


@pytest.mark.parametrize("show_test", [False, True])
def test_a_page_has_test_metrics_of_the_chosen_point(tmp_path: Path, show_test: bool) -> None:
    runs = sweep(tmp_path)
    assert hides(runs, show_test) is not show_test
    page = render(runs, Shown(show_test=show_test))
    assert "0.5200" in page
    assert ("0.6100" in page, "0.7300" in page) == (show_test, show_test)
    assert ("1 of 3 runs are chosen by validation" in page) is not show_test
    canvas = Canvas()
    parts = sections(runs, canvas, Shown(show_test=show_test))
    assert 'class="marked"' in parts["Sweep"]
    drawn = [figure for figure in canvas.figures.values() if "over method.mu" in figure.title]
    assert drawn[0].title == f"{'Test' if show_test else 'Validation'} MRR over method.mu"
    assert list(drawn[0].data[0]["y"]) == ([0.61, 0.52, 0.73] if show_test else [0.30, 0.34, 0.32])


def test_methods_and_data_are_chosen_for_separately(tmp_path: Path) -> None:
    write_sweep(tmp_path / "a", "fedprox", "method.mu", MU)
    write_sweep(tmp_path / "b", "fedprox", "method.mu", {"0": 0.2, "1": 0.25}, data="other")
    write_run(tmp_path / "c", "fedep", level=0.5)
    runs = load_runs([tmp_path])
    best = best_groups(experiments(runs))
    found = {(group.first.dataset, group.approach): group.first.config["method"].get("mu") for group in best}
    assert found == {("atlas", "fedprox"): 0.1, ("other", "fedprox"): 1, ("atlas", "fedep"): None}
    config = best_config(runs)
    assert config is not None
    names = {name: one["data"]["name"] for name, one in variants(config).items()}
    assert names == {"fedprox-atlas": "atlas", "fedprox-other": "other", "fedep-atlas": "atlas"}


def test_privacy_is_a_promise_and_no_choice(tmp_path: Path) -> None:
    for epsilon in (1.0, 4.0):
        options = ["privacy.mode=strict", f"privacy.epsilon={epsilon}"]
        write_run(tmp_path / str(epsilon), "fedep", level=0.2 + epsilon / 100, options=options)
    assert not hides(load_runs([tmp_path]))


def test_the_first_of_equals_and_what_has_not_ended(tmp_path: Path) -> None:
    write_sweep(tmp_path, "fedprox", "method.mu", {"0": 0.3, "1": 0.3})
    write_run(tmp_path / "on", "fedprox", level=0.9, options=["method.mu=2"], ended=False)
    runs = load_runs([tmp_path])
    assert [run.config["method"]["mu"] for run in revealed(runs)] == [0]
    write_run(tmp_path / "alone" / "on", "fedprox", ended=False)
    going = load_runs([tmp_path / "alone"])
    assert best_config(going) is None
    assert [row["best"] for row in sweep_rows(going)] == [False]


VALUES = st.integers(0, 2) | st.sampled_from(["a", "b"])
TABLES = st.dictionaries(st.sampled_from("pq"), VALUES, max_size=2)
NAMED = st.builds(lambda name, more: {"name": name, **more}, st.sampled_from(["x", "y"]), TABLES)
CONFIGS = st.fixed_dictionaries({"seed": st.integers(0, 1), "trainer": TABLES, "method": NAMED})


@given(st.dictionaries(st.sampled_from(["one", "two", "fedep-C3"]), CONFIGS, min_size=1))
def test_experiments_as_variants_are_the_same_experiments(configs: Mapping[str, Mapping[str, Any]]) -> None:
    assert variants(tomllib.loads(to_toml(as_variants(configs)))) == configs
