"""Runs that go on from others, in reports: never taken for every site alone, and what went before is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.errors import DataError
from fedkge.reports.compared import tables
from fedkge.reports.compared.baseline import against_alone, alone
from fedkge.reports.compared.details import budget_rows
from fedkge.reports.compared.experiments import Group, experiments
from fedkge.reports.compared.reference import references
from fedkge.reports.folders.load import load_run, load_runs
from fedkge.reports.pages.findings import doubts, finding, terms
from fedkge.reports.pages.html import render
from fedkge.reports.pages.sweep_section import swept
from run_folders import SITES, write_ranks, write_run

FEDPROX = {
    "run": "x/fedprox",
    "method": "fedprox",
    "kind": "hub",
    "rounds": 200,
    "epochs": 3,
    "bytes": 2_000_000,
}


def going_on(folder: Path, start: dict[str, Any], method: str = "single", **options: Any) -> Path:
    """A run that began with another's tables."""
    given = [f"start={start.get('run', 'x')}", *options.pop("options", ())]
    write_run(folder, method, options=given, **options)
    first, *others = (folder / "run.jsonl").read_text().splitlines(keepends=True)
    told = json.dumps({"event": "warm_start", "time": 0.0, **start}) + "\n"
    (folder / "run.jsonl").write_text("".join([first, told, *others]))
    return folder


@pytest.fixture
def groups(tmp_path: Path) -> dict[str, Group]:
    """After, before alone: nothing may depend on who comes first."""
    going_on(tmp_path / "a", FEDPROX, level=0.5)
    write_run(tmp_path / "b", "single", level=0.3)
    write_run(tmp_path / "c", "fedprox", level=0.4)
    return {group.label: group for group in experiments(load_runs([tmp_path]))}


def test_who_goes_on_alone_is_not_alone(groups: dict[str, Group]) -> None:
    assert list(groups) == ["single", "single after fedprox", "fedprox"]
    every = list(groups.values())
    assert alone(groups["single"], every) is None
    for label in ("single after fedprox", "fedprox"):
        base = alone(groups[label], every)
        assert base is groups["single"]
    without = [groups["single after fedprox"], groups["fedprox"]]
    assert [alone(group, without) for group in without] == [None, None]
    assert groups["single"].colour == "alone"
    assert groups["single after fedprox"].colour != "alone"


def test_seeds_that_go_on_each_from_its_own_are_one_experiment(tmp_path: Path) -> None:
    for seed in (0, 1):
        for name in ("near", "far"):
            start = FEDPROX | {"run": f"x/seed-{seed}/{name}"}
            going_on(tmp_path / f"{seed}-{name}", start, options=[f"seed={seed}"], seed=seed)
    found = experiments(load_runs([tmp_path]))
    assert [[run.path.name for run in group.runs] for group in found] == [
        ["0-far", "1-far"],
        ["0-near", "1-near"],
    ]


def test_tables_compare_it_with_alone(groups: dict[str, Group]) -> None:
    runs = [run for group in groups.values() for run in group.runs]
    last = tables.site_rows(runs)[-1]
    assert last["gains"]["single after fedprox"] == pytest.approx(
        last["single after fedprox"] - last["single"]
    )
    assert "single" not in last["gains"]
    assert [row["run"] for row in tables.joining_rows(experiments(runs))] == [
        "single after fedprox",
        "fedprox",
    ]


def test_question_by_question_too(groups: dict[str, Group]) -> None:
    for rank, group in enumerate(groups.values(), 1):
        write_ranks(group.first.path, {site: np.full(40, rank) for site in SITES})
    beyond = against_alone(list(groups.values()))
    assert beyond["single"] == {}
    assert {one.mean for one in beyond["single after fedprox"].values()} == {-0.5}


def test_what_was_spent_before_is_in_the_budget(groups: dict[str, Group]) -> None:
    every = list(groups.values())
    (row,) = (row for row in budget_rows(every) if row["option"] == "after")
    assert row["single after fedprox"] == "200 rounds of fedprox, 3 epochs each"
    assert row["single"] is row["fedprox"] is None
    (said,) = (text for text in doubts(every) if "goes on from" in text)
    assert said.startswith("single after fedprox goes on from fedprox: 200 rounds of fedprox, 3 epochs each")
    assert "2 MB" in said
    assert not any("after (" in text for text in doubts(every))
    assert "Sites begin with the tables of fedprox" in terms(every)
    assert [text for text in doubts([groups["single"], groups["fedprox"]]) if "goes on" in text] == []


def test_the_page_names_it(groups: dict[str, Group]) -> None:
    runs = [run for group in groups.values() for run in group.runs]
    page = render(runs)
    assert "single after fedprox" in page
    assert "200 rounds of fedprox" in page


def test_each_site_keeps_its_own_round_as_alone(tmp_path: Path) -> None:
    run = load_run(going_on(tmp_path / "a", FEDPROX, last={site: 20 + 5 * i for i, site in enumerate(SITES)}))
    own = run.validation()
    assert run.kept == {site: max(own[site], key=own[site].__getitem__) for site in SITES}


def test_it_is_known_before_the_journal_says_more(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "a", "single", options=["start=runs/prox"], ended=False))
    assert (run.before, run.approach) == (None, "single after prox")


def test_several_before_it(tmp_path: Path) -> None:
    second = {**FEDPROX, "method": "single", "kind": "alone", "rounds": 1, "bytes": 500, "start": FEDPROX}
    run = load_run(going_on(tmp_path / "a", second, "fedep"))
    assert run.approach == "fedep after single after fedprox"
    assert run.before is not None
    assert run.before.sent == 2_000_500
    assert run.before.spent == (
        "1 round of single, 3 epochs each, after 200 rounds of fedprox, 3 epochs each"
    )


def test_graphs_that_were_pooled_before_have_left_their_sites(tmp_path: Path) -> None:
    going_on(tmp_path / "a", {**FEDPROX, "method": "collective", "kind": "pooled"}, level=0.6)
    write_run(tmp_path / "b", "single", level=0.3)
    every = experiments(load_runs([tmp_path]))
    said = finding(every)
    assert "<strong>single</strong> reaches a test MRR" in said
    assert "Pooling all graphs in one place (single after collective, not private)" in said


def test_two_starts_are_told_apart_and_are_no_sweep(tmp_path: Path) -> None:
    going_on(tmp_path / "a", FEDPROX)
    going_on(tmp_path / "b", {**FEDPROX, "run": "x/fedep", "method": "fedep"})
    going_on(tmp_path / "c", {**FEDPROX, "run": "y/fedep", "method": "fedep"})
    runs = load_runs([tmp_path])
    labels = [group.label for group in experiments(runs)]
    assert labels == ["single after fedprox", "single after fedep · b", "single after fedep · c"]
    assert swept(runs) == []


def test_a_sweep_names_a_start_where_the_approach_does_not(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "single")
    going_on(tmp_path / "b", FEDPROX, options=["trainer.lr=0.5"])
    assert swept(load_runs([tmp_path])) == ["trainer.lr", "method.name"]
    going_on(tmp_path / "c", {**FEDPROX, "run": "y/fedprox"}, options=["trainer.lr=0.5"])
    assert set(swept(load_runs([tmp_path]))) == {"start", "trainer.lr", "method.name"}


def test_a_reference_is_found_by_its_method_still(groups: dict[str, Group]) -> None:
    every = list(groups.values())
    assert references(every, "single") == [groups["single"]]
    assert references(every, "single after fedprox") == [groups["single after fedprox"]]
    assert references([groups["single after fedprox"]], "single") == [groups["single after fedprox"]]


def test_a_start_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a 'warm_start' event that cannot be read"):
        load_run(going_on(tmp_path / "a", {"method": "fedprox"}))
