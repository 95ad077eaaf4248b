"""What it takes to converge beside a reference, where the answer is known by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.errors import ConfigError
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.compared.reference import (
    NEVER,
    Cost,
    Course,
    each_reference_rows,
    progress,
    reference_figures,
    reference_rows,
)
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.load import load_run, load_runs
from fedkge.reports.folders.run import Round, Run, Traffic, Validation
from fedkge.reports.pages.sections import Shown, sections
from run_folders import write_run

#: Round -> validation MRR: converges in round 20, has 99 % (0.396) in 15 and 98 % (0.392) in 10.
FEDEP = {5: 0.2, 10: 0.393, 15: 0.397, 20: 0.4, 25: 0.39}
#: The same in rounds 25, 20 and 15.
FEDS = {5: 0.2, 10: 0.3, 15: 0.393, 20: 0.397, 25: 0.41, 30: 0.4}
HALF = Traffic(up_bytes=300, down_bytes=200, up_values=60, down_values=40)
LESS = Traffic(up_bytes=140, down_bytes=100, up_values=25, down_values=15)


def paced(folder: Path, method: str, mrr: Mapping[int, float], sent: Traffic, **options: Any) -> Path:
    """A run in which every round sends the same, and validation goes as told."""
    write_run(folder, method, sites=["one"], last=max(mrr), **options)
    events = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    for event in events:
        if event["event"] == "round":
            event |= sent._asdict()
        if event["event"] == "evaluate":
            event["mrr"] = event["sites"]["one"]["mrr"] = mrr[event["round"]]
    (folder / "run.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def by_run(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["run"]: row for row in rows}


@pytest.fixture
def both(tmp_path: Path) -> list[Run]:
    paced(tmp_path / "fedep", "fedep", FEDEP, HALF)
    paced(tmp_path / "feds", "feds", FEDS, LESS)
    return load_runs([tmp_path])


def test_rounds_values_and_bytes_at_each_level(both: list[Run]) -> None:
    rows = by_run(reference_rows(both, "fedep"))
    fedep, feds = rows["fedep"], rows["feds"]
    assert (fedep["valid_mrr"], feds["valid_mrr"]) == (0.4, 0.41)
    assert [fedep[f"R@{level}"] for level in ("CG", "99", "98")] == [20, 15, 10]
    assert [fedep[f"values@{level}"] for level in ("CG", "99", "98")] == [2000, 1500, 1000]
    assert [fedep[f"bytes@{level}"] for level in ("CG", "99", "98")] == [10_000, 7_500, 5_000]
    assert [feds[f"R@{level}"] for level in ("CG", "99", "98")] == [25, 20, 15]
    assert [feds[f"values@{level}"] for level in ("CG", "99", "98")] == [1000, 800, 600]
    assert [feds[f"bytes@{level}"] for level in ("CG", "99", "98")] == [6_000, 4_800, 3_600]


def test_ratios_are_to_what_the_reference_needed_for_the_same(both: list[Run]) -> None:
    rows = by_run(reference_rows(both, "fedep"))
    for level in ("CG", "99", "98"):
        assert [rows["fedep"][f"{name}@{level}"] for name in ("R_ratio", "P", "B")] == [1, 1, 1]
    feds = rows["feds"]
    assert [feds[f"P@{level}"] for level in ("CG", "99", "98")] == pytest.approx([0.5, 8 / 15, 0.6])
    assert [feds[f"B@{level}"] for level in ("CG", "99", "98")] == pytest.approx([0.6, 0.64, 0.72])
    assert [feds[f"R_ratio@{level}"] for level in ("CG", "99", "98")] == pytest.approx([1.25, 4 / 3, 1.5])
    other = by_run(reference_rows(both, "feds"))["fedep"]
    assert other["P@CG"] == pytest.approx(2)
    assert other["P@99"] == other["B@98"] == NEVER  # 0.4 is less than 98 % of 0.41
    assert other["R@98"] == NEVER


@pytest.mark.parametrize(
    ("feds", "fedep", "printed"),
    [(165, 165, 0.5238), (105, 125, 0.4400), (105, 115, 0.4782), (120, 95, 0.6616)],
)
def test_the_paper_s_own_ratios(feds: int, fedep: int, printed: float, tmp_path: Path) -> None:
    """Table III: P@CG of FedS with p = 0.4 and s = 4 by its Eq. 5, for N shared rows of D = 256 numbers."""
    n, d = 1000, 256
    whole, k = n * d, 400
    paced(tmp_path / "fedep", "fedep", rising(fedep), Traffic(up_values=whole, down_values=whole))
    path = paced(tmp_path / "feds", "feds", rising(feds), Traffic())
    run = load_run(path)
    rounds = {
        number: with_traffic(
            done,
            Traffic(up_values=whole, down_values=whole)
            if number % 5 == 1
            else Traffic(up_values=k * d + n, down_values=k * d + n + k),
        )
        for number, done in run.rounds.items()
    }
    sparse = Run(**{**vars(run), "rounds": rounds})
    rows = by_run(reference_rows([load_run(tmp_path / "fedep"), sparse], "fedep"))
    assert rows["feds"]["P@CG"] == pytest.approx(printed, abs=1e-4)
    assert rows["feds"]["R@CG"] == feds


def rising(rounds: int) -> dict[int, float]:
    """Best at the end."""
    return {number: number / 1000 for number in range(5, rounds + 1, 5)}


def with_traffic(done: Round, sent: Traffic) -> Round:
    return Round(**{**vars(done), "traffic": sent})


def test_sites_alone_are_taken_at_their_own_best(tmp_path: Path) -> None:
    """Each site keeps its own best tables, so a site that has passed its best does not lower the rest."""
    folder = write_run(tmp_path / "single", sites=["a", "b"], last={"a": 20, "b": 10})
    events = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    mrr = {"a": {5: 0.1, 10: 0.2, 15: 0.4, 20: 0.3}, "b": {5: 0.3, 10: 0.1}}
    for event in events:
        if event["event"] == "evaluate":
            for site, found in event["sites"].items():
                found |= {"mrr": mrr[site][event["round"]], "count": 100}
    (folder / "run.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    run = load_run(folder)
    assert progress(run) == pytest.approx({5: 0.2, 10: 0.25, 15: 0.35, 20: 0.35})
    assert Course.of(run).reached(Course.of(run).best) == Cost(15, 0, 0) == Cost(max(run.kept.values()), 0, 0)
    paced(tmp_path / "fedep", "fedep", {5: 0.2, 10: 0.35}, HALF)
    rows = by_run(reference_rows(load_runs([tmp_path]), "fedep"))
    assert (rows["single"]["R@99"], rows["single"]["P@99"], rows["single"]["B@CG"]) == (15, 0, 0)


def test_a_reference_that_sends_nothing_is_no_unit_for_what_is_sent(both: list[Run], tmp_path: Path) -> None:
    pooled = paced(tmp_path / "collective", "collective", {5: 0.3, 10: 0.2}, Traffic())
    rows = by_run(reference_rows([*both, load_run(pooled)], "collective"))
    assert rows["fedep"]["R_ratio@98"] == 2
    assert rows["fedep"]["values@98"] == 1000
    assert rows["fedep"]["P@98"] is rows["fedep"]["B@CG"] is rows["collective"]["P@99"] is None


def test_over_seeds_ratios_are_averaged_and_not_their_parts(tmp_path: Path) -> None:
    for seed, last in ((0, 20), (1, 40)):
        paced(tmp_path / "fedep" / f"seed-{seed}", "fedep", rising(last), HALF, seed=seed)
        paced(tmp_path / "feds" / f"seed-{seed}", "feds", rising(40), LESS, seed=seed)
    rows = by_run(reference_rows(load_runs([tmp_path]), "fedep"))
    # 40 values a round to 100: 1600 / 2000 and 1600 / 4000
    assert rows["feds"]["P@CG"] == pytest.approx(0.6)
    assert rows["feds"]["P@CG_std"] == pytest.approx(0.4 / 2**0.5)
    assert rows["feds"]["values@CG"] == 1600
    assert rows["fedep"]["values@CG"] == 3000
    assert (rows["fedep"]["P@CG"], rows["fedep"]["P@CG_std"]) == (1, 0)
    assert rows["feds"]["seeds"] == 2
    each = [row for row in each_reference_rows(load_runs([tmp_path]), "fedep") if row["run"] == "feds"]
    assert [(row["seed"], row["P@CG"]) for row in each] == [(0, pytest.approx(0.8)), (1, pytest.approx(0.4))]


def test_a_seed_that_never_gets_there_is_not_averaged_away(tmp_path: Path) -> None:
    for seed in (0, 1):
        paced(tmp_path / "fedep" / f"seed-{seed}", "fedep", FEDEP, HALF, seed=seed)
        reached_ = FEDS if seed else {5: 0.3, 10: 0.394, 15: 0.39}
        paced(tmp_path / "feds" / f"seed-{seed}", "feds", reached_, LESS, seed=seed)
    row = by_run(reference_rows(load_runs([tmp_path]), "fedep"))["feds"]
    assert (row["P@99"], row["P@99_std"]) == ("never in 1 of 2", None)
    assert row["R@98"] == 12.5


def test_a_run_that_goes_on_has_not_failed_yet(both: list[Run], tmp_path: Path) -> None:
    going = load_run(paced(tmp_path / "x", "fedprox", {5: 0.3, 10: 0.393}, HALF, ended=False))
    row = by_run(reference_rows([*both, going], "fedep"))["fedprox"]
    assert row["P@98"] == 1
    assert row["P@99"] is row["P@CG"] is row["R@CG"] is None
    rows = by_run(reference_rows([*both, going], "fedprox"))
    assert rows["feds"]["P@99"] is rows["feds"]["R@98"] is None  # the level is not known yet
    assert rows["feds"]["R@CG"] == 25


def test_rounds_that_were_done_again_are_counted_once(tmp_path: Path) -> None:
    for name, killed in (("whole", None), ("killed", 12)):
        write_run(tmp_path / name / "fedep", "fedep", killed_at=killed)
    rows = [reference_rows(load_runs([tmp_path / name]), "fedep") for name in ("whole", "killed")]
    assert rows[0] == rows[1]


def test_the_same_data_model_and_seed_are_compared(tmp_path: Path) -> None:
    paced(tmp_path / "a", "fedep", FEDEP, HALF)
    paced(tmp_path / "b", "feds", FEDS, LESS)
    paced(tmp_path / "c", "fedep", FEDEP, LESS, model="rotate")
    paced(tmp_path / "d", "feds", FEDEP, LESS, model="rotate")
    paced(tmp_path / "e", "fedprox", FEDEP, LESS, seed=1)
    paced(tmp_path / "f", "feds", FEDEP, LESS, data="elsewhere")
    runs = load_runs([tmp_path])
    labels = {run.name: group.label for group in experiments(runs) for run in group.runs}
    rows = by_run(reference_rows(runs, "fedep"))
    assert rows[labels["b"]]["P@CG"] == pytest.approx(0.5)
    assert rows[labels["d"]]["P@CG"] == pytest.approx(1)
    for alone in ("e", "f"):  # no reference with that seed, none on that data
        assert rows[labels[alone]]["values@CG"] == 800
        assert rows[labels[alone]]["P@CG"] is rows[labels[alone]]["R@99"] is None


def test_the_reference_is_a_label_a_folder_or_a_method(tmp_path: Path) -> None:
    for name, codec in (("plain", "float32"), ("small", "int8")):
        paced(tmp_path / name, "fedep", FEDEP, HALF, options=[f"codec.name={codec}"])
    paced(tmp_path / "other" / "seed-0", "feds", FEDS, LESS)
    runs = load_runs([tmp_path])
    for name in ("feds", "feds · float32", "other"):
        assert [row["P@CG"] for row in reference_rows(runs, name)] == pytest.approx([1, 2, 2])
    assert reference_rows(runs, "small") == reference_rows(runs, "fedep · int8")
    with pytest.raises(ConfigError) as several:
        reference_rows(runs, "fedep")
    assert str(several.value) == (
        "--reference: 'fedep' means 2 experiments; name one, as 'fedep · float32' or 'fedep · int8'"
    )
    with pytest.raises(ConfigError) as unknown:
        reference_rows(runs, "othr")
    assert str(unknown.value) == (
        "--reference: no run is 'othr'; did you mean 'other'? "
        "(there are: feds · float32, fedep · float32, fedep · int8)"
    )


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=8), st.floats(0.01, 1))
def test_the_first_round_at_a_level_by_looking_at_each(curve: list[float], level: float) -> None:
    none: dict[str, Any] = {"seconds": 0.0, "exchange_seconds": 0.0, "triples": 0, "losses": {}}
    none |= {"participants": frozenset(), "late": frozenset(), "refused": {}, "void": False, "sites": {}}
    rounds = {n: Round(**none, traffic=Traffic(n, 1, 2 * n, 3)) for n in range(1, len(curve) + 1)}
    found = {n: Validation(mrr, {}) for n, mrr in enumerate(curve, 1)}
    config = {"method": {"name": "fede"}, "model": {"name": "transe"}, "data": {"name": "x"}, "seed": 0}
    run = Run(Path("x"), config, {}, [], {}, None, 0, rounds, found, [])
    spent: Cost | str = NEVER
    for n in reversed(range(1, len(curve) + 1)):
        if curve[n - 1] >= level:
            spent = Cost(n, sum(2 * i + 3 for i in range(1, n + 1)), sum(i + 1 for i in range(1, n + 1)))
    assert Course.of(run).reached(level) == spent
    top = Course.of(run).best
    assert top is not None
    costs = [Course.of(run).reached(share * top) for share in (0.98, 0.99, 1)]
    assert costs == sorted(costs, key=lambda cost: cost[0] if cost else 0)
    assert isinstance(costs[-1], Cost)


def test_the_plot_has_the_levels_and_where_each_converged(both: list[Run], tmp_path: Path) -> None:
    single = load_run(write_run(tmp_path / "single", sites=["one"], last=20))
    (figure,) = reference_figures(experiments([*both, single]), "fedep")
    assert figure.layout["xaxis"]["type"] == "log"
    lines = {trace["name"]: trace for trace in figure.data if trace["mode"] == "lines"}
    stars = {trace["name"]: trace for trace in figure.data if trace["mode"] == "markers"}
    assert lines["99 % of fedep"]["y"] == pytest.approx([0.396, 0.396])
    assert lines["98 % of fedep"]["y"] == pytest.approx([0.392, 0.392])
    assert lines["fedep"]["x"] == [2500, 5000, 7500, 10_000, 12_500]
    assert lines["feds"]["x"] == [2400, 3600, 4800, 6000, 7200]  # from just before it comes near
    assert lines["single"]["x"] == lines["99 % of fedep"]["x"] == [2400, 12_500]
    assert (stars["feds"]["x"], stars["feds"]["y"]) == ([6000], [0.41])
    assert "5 kB" in figure.layout["xaxis"]["ticktext"]


def test_without_traffic_or_before_the_reference_ends_there_is_no_plot(tmp_path: Path) -> None:
    single = load_run(write_run(tmp_path / "single"))
    going = load_run(write_run(tmp_path / "going", "fedep", ended=False))
    assert reference_figures(experiments([single]), "single") == []
    assert reference_figures(experiments([single, going]), "fedep") == []
    assert "What it takes to converge" in sections([single, going], Canvas(), Shown("fedep"))


def test_the_page_has_the_ratios_and_what_they_are_ratios_of(both: list[Run], tmp_path: Path) -> None:
    assert "What it takes to converge" not in sections(both, Canvas())
    weak = load_run(paced(tmp_path / "weak", "fedprox", {5: 0.3}, LESS))
    part = sections([*both, weak], Canvas(), Shown("fedep"))["What it takes to converge"]
    assert "<td>25</td><td>0.500</td><td>0.533</td><td>0.600</td><td>0.600</td><td>0.640</td>" in part
    assert "<td>1 k</td><td>800</td><td>600</td><td>6 kB</td><td>4.8 kB</td><td>3.6 kB</td>" in part
    assert "<td>never</td>" in part
    assert "Each seed" not in part


def test_the_page_of_seeds_has_each(tmp_path: Path) -> None:
    for seed in (0, 1):
        paced(tmp_path / "fedep" / f"seed-{seed}", "fedep", FEDEP, HALF, seed=seed)
        paced(tmp_path / "feds" / f"seed-{seed}", "feds", FEDS, LESS, seed=seed)
    part = sections(load_runs([tmp_path]), Canvas(), Shown("fedep"))["What it takes to converge"]
    assert "<summary>Each seed</summary>" in part
    assert '0.500 <span class="std">± 0.000</span>' in part
