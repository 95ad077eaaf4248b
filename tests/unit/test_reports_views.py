"""Of methods with several tables the page says which number is of which, and when each was kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from commands import printed
from fedkge.errors import DataError
from fedkge.reports.compared.experiments import METRICS, experiments
from fedkge.reports.compared.tables import changes, dial_rows, kept_at, view_rows
from fedkge.reports.drawing import curves
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.load import load_run, load_runs
from fedkge.reports.pages.sections import sections
from run_folders import SITES, metrics, write_run, write_seeds

VIEWS = {"second": 0.21, "laid": 0.22}  #: what they reach; the first is validated, best in round 20
BEST = 20


def of_two(folder: Path, dials: dict[int, Any] | None = None, **options: Any) -> Path:
    """A run whose method validates a second table, and measures a third that lies on it."""
    write_run(folder, "twofold", **options)
    lines = []
    for line in (folder / "run.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["event"] == "evaluate":
            event["views"] = {"second": 0.3 - 0.001 * abs(event["round"] - BEST)}
            event |= {"dials": dials[event["round"]]} if dials else {}
        lines.append(json.dumps(event) + "\n")
    (folder / "run.jsonl").write_text("".join(lines), encoding="utf-8")
    if (folder / "summary.json").is_file():
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        for of in (summary, *summary["sites"].values()):
            of["metrics"] |= {f"test_{view}": metrics(mrr, 100) for view, mrr in VIEWS.items()}
        summary["courses"]["federation"]["best_rounds"] = {"second": BEST}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder


def page_of(*paths: Path) -> dict[str, str]:
    return sections(load_runs(paths), Canvas())


# When each was kept


def test_every_table_has_its_own_round(tmp_path: Path) -> None:
    run = load_run(of_two(tmp_path / "run"))
    (own,) = set(run.kept.values())
    assert own != BEST
    assert [kept_at(run, view) for view in ("", "second", "laid")] == [own, BEST, BEST]
    begun = load_run(of_two(tmp_path / "begun", ended=False, last=33))
    assert [kept_at(begun, view) for view in ("", "second")] == [30, BEST]


def test_tables_that_nobody_validates_are_of_the_round_that_was_kept(tmp_path: Path) -> None:
    folder = of_two(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary["courses"]["federation"]["best_rounds"] = {}
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    run = load_run(folder)
    assert {kept_at(run, view) for view in ("", *VIEWS)} == set(run.kept.values())


# Tables


def test_every_table_has_every_metric(tmp_path: Path) -> None:
    paths = [of_two(tmp_path / "run"), write_run(tmp_path / "alone")]
    runs = load_runs(paths)
    rows = view_rows(runs)
    assert [(row["run"], row["table"]) for row in rows] == [
        ("twofold", table) for table in ("local", "second", "laid")
    ]
    for row, split in zip(rows, ("test", "test_second", "test_laid"), strict=True):
        assert {metric: row[metric] for metric in METRICS} == {
            metric: runs[0].metrics(split)[metric] for metric in METRICS
        }
    html = page_of(*paths)["Results"]
    for view, mrr in VIEWS.items():
        expected = [f"{metrics(mrr, 100)[f'hits@{k}']:.4f}" for k in (1, 3, 5, 10)]
        cells = "".join(f"<td>{hits}</td>" for hits in expected)
        assert f'<td class="words">{view}</td><td>{mrr:.4f}</td><td>{12 / mrr:,.1f}</td>{cells}' in html
        assert f"{cells}<td>{BEST}</td>" in html
    assert ">MRR, second<" not in html, "whose round is not that of the row"


def test_over_seeds_tables_have_means(tmp_path: Path) -> None:
    for seed, mrr in ((0, 0.2), (1, 0.4)):
        folder = of_two(tmp_path / str(seed), seed=seed)
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        summary["metrics"]["test_second"] = metrics(mrr, 100)
        summary["courses"]["federation"]["best_rounds"] = {"second": 10 + 20 * seed}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (row,) = (row for row in view_rows(load_runs([tmp_path])) if row["table"] == "second")
    assert (row["mrr"], row["best_round"]) == (pytest.approx(0.3), 20)
    assert row["mrr_std"] == pytest.approx(0.1 * 2**0.5)


def test_columns_of_sites_name_their_tables(tmp_path: Path) -> None:
    html = page_of(of_two(tmp_path / "run"))["Results by site"]
    for title in ("MRR, local", "Kept, local", "MRR, second", "MRR, laid"):
        assert f">{title}</th>" in html
    assert html.count(f'title="of the tables kept at round {BEST}"') == 2
    assert "these are the local ones" in html


def test_a_method_with_one_table_is_told_as_before(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", "fedep")
    assert view_rows([load_run(path)]) == []
    html = "".join(page_of(path).values())
    assert "local" not in html
    assert "By table" not in html
    assert "switched on" not in html


# Curves


def stars(*paths: Path) -> dict[str, list[float]]:
    figure = curves.view_figure(experiments(load_runs(paths)))
    assert figure is not None
    return {
        trace["name"]: [*trace["x"], *trace["y"]]
        for trace in figure.data
        if trace.get("marker", {}).get("symbol") == "star"
    }


def test_every_line_has_the_star_of_its_own_round(tmp_path: Path) -> None:
    path = of_two(tmp_path / "run")
    run = load_run(path)
    (own,) = set(run.kept.values())
    assert stars(path) == {
        "twofold, local": [own, run.validations[own].mrr],
        "twofold, second": [BEST, pytest.approx(0.3)],
    }
    html = page_of(path)["Training"]
    assert "a star marks the round at which that kind was kept" in html
    assert "beside those that it keeps" not in html


def test_a_mean_over_seeds_has_no_star(tmp_path: Path) -> None:
    assert stars(of_two(tmp_path / "0"), of_two(tmp_path / "1", seed=1)) == {}


# Dials


def test_what_the_hub_switched_on_is_said_by_round(tmp_path: Path) -> None:
    told = {n: {"to_local": float(n >= 15), "to_second": 0.0} for n in range(5, 60, 5)}
    path = of_two(tmp_path / "run", told)
    assert dial_rows(experiments(load_runs([path]))) == [
        {"run": "twofold", "seed": 0, "to_local": "round 15", "to_second": "never"}
    ]
    html = page_of(path)["Training"]
    assert '<td class="words">round 15</td><td class="words">never</td>' in html
    assert ">Seed<" not in html


def test_sites_that_are_told_other_things_are_named(tmp_path: Path) -> None:
    apart = dict(zip(SITES, (1.0, 0.0, 0.0, 1.0), strict=True))
    told = {n: {"way": 0.0 if n < 10 else apart if n < 25 else 1.0} for n in range(5, 60, 5)}
    (row,) = dial_rows(experiments(load_runs([of_two(tmp_path / "run", told)])))
    assert row["way"] == "round 10 (airline, languages); round 25 (gazetteer, government)"


def test_seeds_switch_by_themselves(tmp_path: Path) -> None:
    for seed in (0, 1):
        told = {n: {"way": float(n >= 10 + 20 * seed)} for n in range(5, 60, 5)}
        of_two(tmp_path / "two" / str(seed), told, seed=seed)
    write_seeds(tmp_path / "one", "fedep", (0, 1))
    rows = dial_rows(experiments(load_runs([tmp_path])))
    assert [(row["seed"], row["way"]) for row in rows] == [(0, "round 10"), (1, "round 30")]
    assert ">Seed<" in page_of(tmp_path)["Training"]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({5: 0.0, 10: 1.0, 15: 1.0}, "round 10"),
        ({5: 0.0}, "never"),
        ({5: 1.0, 10: 1.0}, "1 from round 5 on, the first validated"),
        ({5: 0.0, 10: 0.5, 15: 0.0}, "0 at first, 0.5 after round 10, 0 after round 15"),
    ],
)
def test_changes_in_words(told: dict[int, float], words: str) -> None:
    assert changes(told) == words


def test_dials_that_are_no_numbers_are_an_error(tmp_path: Path) -> None:
    path = of_two(tmp_path / "run", {n: {"way": "on"} for n in range(5, 60, 5)})
    with pytest.raises(DataError, match="a 'evaluate' event that cannot be read"):
        load_run(path)


# The command


def test_the_command_shows_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedkge.cli.main import app

    monkeypatch.setattr("fedkge.reports.pages.html.write_report", lambda *_: None)
    path = of_two(tmp_path / "run")
    shown = CliRunner().invoke(app, ["report", str(path)]).output
    assert "By table, over all sites" in shown
    for view, mrr in VIEWS.items():
        (line,) = (line for line in shown.splitlines() if f"│ {view} " in line)
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        hits = [f"{metrics(mrr, 100)[f'hits@{k}']:.4f}" for k in (1, 3, 10)]
        assert cells == [view, f"{mrr:.4f}", f"{12 / mrr:.1f}", *hits, str(BEST)]
    found = printed(CliRunner().invoke(app, ["report", str(path), "--json"]).output)
    assert [row["table"] for row in found["tables"]] == ["local", *VIEWS]
