"""Which side's questions decide: on validation, stopping and the headline; all sides stay in the summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedkge.errors import ConfigError, DataError
from fedkge.evaluation import Known, combined, metrics, rank
from fedkge.models import Side
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.compared.tables import metric_rows, own_rows, site_rows, views
from fedkge.reports.drawing.curves import validation_figures
from fedkge.reports.folders.load import events, load_run, load_runs
from fedkge.reports.pages.findings import doubts, finding
from fedkge.reports.pages.html import cards
from fedkge.reports.pages.results import protocol
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import run
from run_folders import write_run
from small_federations import experiment, small_federation

SITES = small_federation()
SIDES = {"both": (Side.HEAD, Side.TAIL), "head": (Side.HEAD,), "tail": (Side.TAIL,)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same training, judged by each side; validated every round, kept at the best."""
    folder = tmp_path_factory.mktemp("runs")
    for sides in SIDES:
        evaluate = {"every": 1, "patience": 0, "sides": sides}
        one = experiment(rounds=6, method={"name": "fedep"}, evaluate=evaluate)
        run(one, RunFolder.create(folder / sides, one, False), torch.device("cpu"), SITES)
    return {sides: folder / sides for sides in SIDES}


def summary(path: Path) -> dict[str, Any]:
    return RunFolder.open(path).summary()


@pytest.mark.parametrize("sides", SIDES)
def test_the_kept_tables_are_the_best_on_the_chosen_side(runs: dict[str, Path], sides: str) -> None:
    """Measured again from what the folder keeps, by nothing but that side's questions."""
    validated = [e for e in events(runs[sides]) if e["event"] == "evaluate"]
    best = max(validated, key=lambda event: event["mrr"])
    found = summary(runs[sides])
    assert (found["best_round"], found["sides"]) == (best["round"], sides)
    again = {}
    for site, graph in SITES.items():
        tables, *_ = RunFolder.open(runs[sides]).load_site(site)
        again[site] = metrics(rank(tables, graph.valid, Known.from_graph(graph), sides=SIDES[sides]))
        assert best["sites"][site] == again[site]
    assert best["mrr"] == combined(again.values())["mrr"]


def test_rounds_are_the_same_and_what_is_kept_is_not(runs: dict[str, Path]) -> None:
    """Else the sides above would be one and the same claim."""
    losses = [
        [{site: of["loss"] for site, of in e["sites"].items()} for e in events(path) if e["event"] == "round"]
        for path in runs.values()
    ]
    assert losses[0] == losses[1] == losses[2]
    validated = [[e["mrr"] for e in events(path) if e["event"] == "evaluate"] for path in runs.values()]
    assert all(np.allclose(b, (h + t) / 2) for b, h, t in zip(*validated, strict=True))
    assert len({str(each) for each in validated}) == 3
    assert len({summary(path)["best_round"] for path in runs.values()}) > 1


@pytest.mark.parametrize("sides", SIDES)
def test_all_sides_stay_in_the_summary(runs: dict[str, Path], sides: str) -> None:
    found = summary(runs[sides])
    for of in (found, *found["sites"].values()):
        both, head, tail = (of["metrics"][f"test{end}"] for end in ("", "_head", "_tail"))
        assert both["mrr"] == pytest.approx((head["mrr"] + tail["mrr"]) / 2)
        assert both["count"] == 2 * head["count"] == 2 * tail["count"]


@pytest.mark.parametrize("sides", SIDES)
def test_ranks_are_kept_in_the_order_of_the_triples(runs: dict[str, Path], sides: str) -> None:
    found = summary(runs[sides])
    for site, graph in SITES.items():
        kept = load_file(runs[sides] / "sites" / site / "ranks.safetensors")
        tables, *_ = RunFolder.open(runs[sides]).load_site(site)
        assert kept.pop("triples").tolist() == graph.test.tolist()
        for side, values in kept.items():
            one_by_one = [
                rank(tables, triple[None], Known.from_graph(graph), sides=[Side(side)]).values()[0]
                for triple in graph.test
            ]
            assert values.tolist() == one_by_one
            mrr = found["sites"][site]["metrics"][f"test_{side}"]["mrr"]
            assert np.mean(1 / values.astype(np.float64)) == pytest.approx(mrr)


def test_a_side_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.sides.*did you mean 'tail'"):
        experiment(evaluate={"sides": "tails"})


# Reports


@pytest.mark.parametrize("sides", SIDES)
def test_the_headline_is_of_the_side_that_decided(runs: dict[str, Path], sides: str) -> None:
    loaded = load_run(runs[sides])
    split = "test" if sides == "both" else f"test_{sides}"
    (row,) = metric_rows([loaded])
    found = summary(runs[sides])
    assert row["mrr"] == found["metrics"][split]["mrr"]
    assert row["hits@10"] == found["metrics"][split]["hits@10"]
    assert [r["mrr"] for r in own_rows(loaded)[:-1]] == [
        found["sites"][site]["metrics"][split]["mrr"] for site in SITES
    ]
    assert site_rows([loaded])[-1]["queries"] == found["metrics"][split]["count"]
    beside = {"both": {"tail_mrr"}, "tail": {"both_mrr"}, "head": {"both_mrr", "tail_mrr"}}[sides]
    assert beside == row.keys() & {"tail_mrr", "both_mrr"}
    assert views([loaded]) == []
    words = {"both": "head and tail", "head": "heads alone", "tail": "tails alone"}[sides]
    groups = experiments([loaded])
    for text in (finding(groups), cards(groups), protocol([loaded])):
        assert words in text
    title = validation_figures(groups)[0].title
    assert title == ("Validation MRR" if sides == "both" else f"Validation MRR, {words}")


def test_runs_that_are_judged_by_different_sides_are_doubtful(runs: dict[str, Path]) -> None:
    texts = " ".join(doubts(experiments(load_runs([runs["both"], runs["tail"]]))))
    assert (
        "judged by different questions (fedep · sides=both: head and tail; fedep · sides=tail: tails" in texts
    )


def test_alone_is_compared_on_the_side_of_the_other(tmp_path: Path) -> None:
    single = write_run(tmp_path / "single")
    fede = write_run(tmp_path / "fede", "fede", options=["evaluate.sides=tail"], level=0.4)
    loaded = load_runs([single, fede])
    last = site_rows(loaded)[-1]
    gain = last["gains"]["fede"]
    assert gain == loaded[1].metrics("test_tail")["mrr"] - loaded[0].metrics("test_tail")["mrr"]


def test_a_folder_with_another_side_is_an_error(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", options=["evaluate.sides=middle"])
    with pytest.raises(DataError, match=r"evaluate\.sides is 'middle'; expected one of both, head, tail"):
        load_run(folder)
