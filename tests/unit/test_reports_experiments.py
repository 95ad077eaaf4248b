"""Runs that belong together are found and told together: folders of runs, seeds, sweeps."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from fedkge.errors import DataError
from fedkge.reports.compared import tables
from fedkge.reports.compared.experiments import experiments, foremost, spread
from fedkge.reports.compared.tables import seed_rows
from fedkge.reports.drawing import curves
from fedkge.reports.drawing.curves import over_bytes, over_seeds
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.drawing.lines import apart
from fedkge.reports.folders.load import load_runs
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.findings import notices
from fedkge.reports.pages.sections import Shown, sections
from fedkge.reports.pages.sweep_section import lines_of, places, sweep_figures, sweep_rows, swept, swept_keys
from run_folders import SITES, write_run, write_seeds, write_sweep


def shown(runs: list[Run]) -> tuple[dict[str, str], Canvas]:
    canvas = Canvas()
    return sections(runs, canvas), canvas


# folders of runs


def test_a_folder_stands_for_the_runs_below_it(tmp_path: Path) -> None:
    for seed in (10, 2, 1):
        write_run(tmp_path / "fede" / f"seed-{seed}", "fede", seed=seed)
    write_run(tmp_path / "single", "single")
    assert [run.name for run in load_runs([tmp_path])] == ["seed-1", "seed-2", "seed-10", "single"]
    given = load_runs([tmp_path / "single", tmp_path / "fede"])
    assert [run.name for run in given] == ["single", "seed-1", "seed-2", "seed-10"]


def test_what_lies_within_a_run_is_no_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_run(run / "sites" / "airline")
    assert len(load_runs([tmp_path])) == 1


def test_a_folder_without_runs_and_a_run_found_twice_are_errors(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: not a run folder; expected one with config.toml.*of such"):
        load_runs([tmp_path / "empty"])
    with pytest.raises(DataError, match="one: given twice"):
        load_runs([tmp_path / "runs", tmp_path / "runs" / "one"])


# seeds


def test_runs_that_differ_in_their_seed_alone_are_one_experiment(tmp_path: Path) -> None:
    write_seeds(tmp_path / "fede", "fede", (0, 1, 2))
    write_seeds(tmp_path / "wide", "fede", (0, 1), options=["model.dim=256"])
    write_run(tmp_path / "again", "fede", seed=1)
    found = {group.label: [run.seed for run in group.runs] for group in experiments(load_runs([tmp_path]))}
    assert len(found) == 3
    assert sorted(found.values()) == [[0, 1], [0, 1, 2], [1]]  # a seed that came again stands by itself


def test_seeds_are_told_as_mean_and_deviation_of_the_sample(tmp_path: Path) -> None:
    runs = load_runs([write_seeds(tmp_path / "fede", "fede"), write_seeds(tmp_path / "single", "single")])
    own = [run.metrics("test", "airline")["hits@10"] for run in runs if run.method == "fede"]
    row = next(r for r in seed_rows(runs) if r["run"] == "fede" and r["site"] == "airline")
    assert len(set(own)) == 3
    assert (row["hits@10"], row["hits@10_std"]) == pytest.approx((mean(own), stdev(own)))
    assert row["seeds"] == 3
    assert [r["site"] for r in seed_rows(runs)] == [*SITES, "all"] * 2
    whole = [run.metrics("test")["mrr"] for run in runs if run.method == "fede"]
    metrics = {r["run"]: r for r in tables.metric_rows(runs)}
    assert (metrics["fede"]["mrr"], metrics["fede"]["mrr_std"]) == pytest.approx((mean(whole), stdev(whole)))
    sites = tables.site_rows(runs)[-1]
    assert sites["gains"]["fede"] == pytest.approx(metrics["fede"]["mrr"] - metrics["single"]["mrr"])


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    runs = load_runs([write_run(tmp_path / "run", "fede")])
    assert {row["mrr_std"] for row in seed_rows(runs)} == {None}
    assert "run" not in seed_rows(runs)[0]
    assert "mrr_std" not in tables.metric_rows(runs)[0]
    assert spread([None, float("nan")]) is None


def test_curves_of_seeds_have_bands(tmp_path: Path) -> None:
    runs = load_runs([write_seeds(tmp_path, "fede")])
    figure = curves.validation_figures(experiments(runs))[0]
    low, high, line = (trace["y"] for trace in figure.data)
    values = [run.validations[20].mrr for run in runs]
    at = figure.data[2]["x"].index(20)
    assert line[at] == pytest.approx(mean(values))
    assert (low[at], high[at]) == pytest.approx((mean(values) - stdev(values), mean(values) + stdev(values)))


def test_a_stopped_run_counts_on_and_one_that_goes_on_ends_the_mean(tmp_path: Path) -> None:
    assert [p[:2] for p in over_seeds([{1: 1.0, 2: 3.0}, {1: 3.0, 2: 5.0, 3: 9.0}])] == [
        (1, 2.0),
        (2, 4.0),
        (3, 6.0),
    ]
    sent = [{1: 10.0, 2: 20.0}, {1: 20.0, 2: 40.0, 3: 60.0}]
    assert [p.x for p in over_bytes([{2: 3.0}, {2: 5.0, 3: 9.0}], sent)] == [30.0, 40.0]
    write_run(tmp_path / "a", "fede", seed=0)
    write_run(tmp_path / "b", "fede", seed=1, ended=False, last=23)
    groups = experiments(load_runs([tmp_path]))
    assert max(curves.validation_figures(groups)[0].data[-1]["x"]) == 20
    assert "fede, seed 1, has not ended" in notices(groups)
    assert seed_rows(load_runs([tmp_path]))[0]["seeds"] == 1


def test_the_page_of_seeds_shows_deviations_and_each_seed(tmp_path: Path) -> None:
    runs = load_runs([write_seeds(tmp_path, "fede")])
    parts, _ = shown(runs)
    row = tables.metric_rows(runs)[0]
    assert f'{row["mrr"]:.4f} <span class="std">± {row["mrr_std"]:.4f}</span>' in parts["Results"]
    for run in runs:
        assert f"{run.metrics('test')['mrr']:.4f}" in parts["Results"]
    assert "Sweep" not in parts


# sweeps


def test_swept_keys_are_those_that_were_chosen_to_differ(tmp_path: Path) -> None:
    def keys(*options: dict[str, Any]) -> list[str]:
        where = tmp_path / str(len(list(tmp_path.iterdir())))
        runs = [write_run(where / str(i), **of) for i, of in enumerate(options)]
        return swept_keys(load_runs(runs))

    def fede(*options: str) -> dict[str, Any]:
        return {"method": "fede", "options": options}

    assert keys(fede(), {**fede(), "seed": 1}) == []
    assert keys(fede("model.dim=8"), fede("model.dim=16")) == ["model.dim"]
    assert keys({"method": "single"}, fede()) == ["method.name"]
    margins: list[dict[str, Any]] = [
        {"model": "transe"},
        {"model": "rotate", "options": ["model.margin=9.0"]},
    ]
    assert keys(*margins) == ["model.name"]  # each model has its own margin
    assert keys(fede("method.mu=1"), {"method": "fedec", "options": ["method.mu=2"]}) == ["method.name"]
    prox: list[dict[str, Any]] = [{"method": "fedprox", "options": [f"method.mu={mu}"]} for mu in (0, 1)]
    assert keys({"method": "single"}, *prox) == ["method.name", "method.mu"]


def test_a_row_per_grid_point(tmp_path: Path) -> None:
    for seed in (0, 1):
        for dim in (64, 128):
            for codec in ("float32", "int8"):
                options = [f"model.dim={dim}", f"codec.name={codec}"]
                where = tmp_path / f"dim={dim},codec={codec}" / f"seed-{seed}"
                write_run(where, "fede", seed=seed, level=0.2 + dim / 1000, width=dim, options=options)
    runs = load_runs([tmp_path])
    rows = sweep_rows(runs, show_test=True)
    assert swept_keys(runs) == ["model.dim", "codec.name"]
    assert [(r["model.dim"], r["codec.name"], r["seeds"]) for r in rows] == [
        (64, "float32", 2),
        (64, "int8", 2),
        (128, "float32", 2),
        (128, "int8", 2),
    ]
    wide = [
        run for run in runs if run.config["model"]["dim"] == 128 and run.config["codec"]["name"] == "int8"
    ]
    values = [run.metrics("test")["mrr"] for run in wide]
    last = rows[-1]
    assert (last["mrr"], last["mrr_std"]) == pytest.approx((mean(values), stdev(values)))
    assert last["bytes"] == last["up_bytes"] + last["down_bytes"] == mean(run.traffic.bytes for run in wide)
    assert (last["rounds"], last["seconds"]) == (55, pytest.approx(wide[0].summary["seconds"]["total"]))  # type: ignore[index]
    groups = experiments(runs)
    lines = lines_of("model.dim", groups, swept_keys(runs))
    assert {name: len(of) for name, of in lines.items()} == {"float32": 2, "int8": 2}


def test_a_key_that_follows_another_makes_no_lines(tmp_path: Path) -> None:
    for epochs, rounds in ((1, 60), (2, 30)):
        write_run(tmp_path / str(epochs), "fede", options=[f"trainer.epochs={epochs}", f"rounds={rounds}"])
    runs = load_runs([tmp_path])
    assert swept_keys(runs) == ["rounds", "trainer.epochs"]
    assert list(lines_of("trainer.epochs", experiments(runs), swept_keys(runs))) == ["fede"]


def test_values_stand_to_scale_where_they_can() -> None:
    assert places("lr", [0.001, 0.1, 0.01]).axis["type"] == "log"
    assert places("dim", [64, 128, 256]).axis["type"] == "linear"
    with_zero = places("mu", [1, 0, 0.01])
    assert with_zero.axis["ticktext"] == ["0", "0.01", "1"]
    assert "not to scale" in with_zero.axis["title"]["text"]
    assert places("share", [0.0, 0.5, 1.0]).axis["type"] == "linear"
    words = places("codec", ["int8", "float32"])
    assert (words.axis["ticktext"], words.numbers) == (["int8", "float32"], False)


def test_a_sweep_is_shown_beside_what_does_not_have_the_key(tmp_path: Path) -> None:
    write_sweep(tmp_path, "fedprox", "method.mu", {"0": 0.33, "0.1": 0.36, "1": 0.31})
    write_run(tmp_path / "single", "single")
    runs = load_runs([tmp_path])
    groups = experiments(runs)
    figure = sweep_figures("method.mu", groups, swept_keys(runs))[0]
    level, line = figure.data
    assert (level["name"], line["name"]) == ("single", "fedprox")
    rows = sweep_rows(runs, show_test=True)
    assert line["y"] == [row["mrr"] for row in rows if row["method.mu"] is not None]
    parts, canvas = shown(runs)
    assert "<h3>method.mu</h3>" in parts["Sweep"]
    assert "<h3>method.name</h3>" not in parts["Sweep"]
    assert list(parts)[list(parts).index("Results") + 1] == "Sweep"
    assert sum("over method.mu" in figure.title for figure in canvas.figures.values()) == 3


def test_a_comparison_of_methods_is_no_sweep(tmp_path: Path) -> None:
    runs = load_runs([write_run(tmp_path / m, m) for m in ("single", "fede", "fedep", "collective")])
    assert swept(runs) == []
    assert "Sweep" not in shown(runs)[0]


def test_too_many_experiments_are_listed_but_not_all_drawn(tmp_path: Path) -> None:
    write_sweep(tmp_path, "fede", "model.dim", {str(8 * i): 0.2 + 0.01 * i for i in range(1, 13)})
    write_run(tmp_path / "single", "single", level=0.1)
    runs = load_runs([tmp_path])
    drawn = [group.label for group in foremost(experiments(runs), 8)]
    assert len(drawn) == 8
    assert "single · dim=128" in drawn
    assert "fede · dim=8" not in drawn
    parts = sections(runs, Canvas(), Shown(show_test=True))
    assert "Of 13 experiments 8 are drawn" in parts["Training"]
    assert parts["Results"].count("<tr>") == 14
    options = re.sub("<.*?>", " ", parts["Configuration"])
    assert re.search("model.dim +128, 8, 16, 24", options)


def test_the_colours_of_alone_and_pooled_are_the_same_on_every_page(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / m, m) for m in ("fedep", "collective", "fede", "single")]
    few = {group.label: group.colour for group in experiments(load_runs(folders[1:]))}
    all_ = {group.label: group.colour for group in experiments(load_runs(folders))}
    assert few == {"single": "alone", "fede": "s0", "collective": "pooled"}
    assert list(all_.items()) == [
        ("single", "alone"),
        ("fedep", "s0"),
        ("fede", "s1"),
        ("collective", "pooled"),
    ]


def test_names_beside_lines_do_not_cover_each_other() -> None:
    assert apart([10.0, 100.0], 16, 300) == [10.0, 100.0]
    assert apart([10.0, 12.0, 13.0], 16, 300) == [10.0, 26.0, 42.0]
    assert apart([295.0, 298.0], 16, 300) == [284.0, 300.0]
