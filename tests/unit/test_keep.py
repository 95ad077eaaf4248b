"""Whose best round is kept: that of all sites together, or where asked each site's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedkge.reports.compared.reference import Course
from fedkge.reports.folders.load import events, load_run
from fedkge.reports.pages.html import write_report
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import run
from small_federations import assert_same, experiment, played, result, rows, small_federation

SITES = small_federation(relations_in_common=True)
EACH = {"every": 1, "patience": 0, "keep": "each"}


@pytest.mark.parametrize("method", ["fede", "fedep", "fedlu", "pfedeg", "single"])
def test_training_is_the_same_and_what_is_kept_is_each_sites_best(tmp_path: Path, method: str) -> None:
    """Alone, that is what it keeps anyway."""
    options = {"method": {"name": method}, "rounds": 9}
    together = played(tmp_path / "together", SITES, evaluate=EACH | {"keep": "together"}, **options)
    each = played(tmp_path / "each", SITES, evaluate=EACH, **options)
    if method == "single":
        assert_same(together, each)
    first, second = rows(together), rows(each)
    assert all(torch.equal(first[name], second[name]) for name in first if name.startswith("now"))
    validated = [event for event in events(tmp_path / "each") if event["event"] == "evaluate"]
    found, courses = result(each).metrics["valid"], result(each).courses
    for site in SITES:
        curve = [event["sites"][site]["mrr"] for event in validated]
        assert courses[site]["best_round"] == 1 + curve.index(max(curve))
        assert found[site]["both"]["mrr"] == max(curve)
    assert len({course["best_round"] for course in courses.values()}) > 1
    assert {course["rounds"] for course in courses.values()} == {9}


@pytest.mark.filterwarnings("ignore:.*left out of the pooled train")
@pytest.mark.parametrize("method", ["fedlu", "collective"])
def test_reports_say_which_rounds_were_kept(tmp_path: Path, method: str) -> None:
    one = experiment(method={"name": method}, rounds=9, evaluate=EACH)
    folder = RunFolder.create(tmp_path / "run", one, resume=False)
    summary = run(one, folder, torch.device("cpu"), SITES)
    found = load_run(tmp_path / "run")
    rounds = {name: course["best_round"] for name, course in summary["courses"].items()}
    if method == "collective":  # has one table for all
        assert set(found.kept.values()) == set(rounds.values()) == {summary["best_round"]}
        return
    assert found.kept == rounds
    assert len(set(rounds.values())) > 1
    best = [course["best_rounds"]["global"] for course in summary["courses"].values()]
    assert found.kept_rounds("global") == found.kept_rounds("hub") == set(best)
    assert len(set(best)) > 1
    assert Course.of(found).best == pytest.approx(summary["metrics"]["valid"]["mrr"])
    assert Course.of(found).best > max(validation.mrr for validation in found.validations.values())


@pytest.mark.parametrize(
    ("method", "words"),
    [("pfedeg", "the last of which a site keeps its tables"), ("fedlu", "of the tables kept at rounds ")],
)
def test_the_page_does_not_call_a_round_of_some_sites_that_of_all(
    tmp_path: Path, method: str, words: str
) -> None:
    one = experiment(method={"name": method}, rounds=9, evaluate=EACH)
    run(one, RunFolder.create(tmp_path / "run", one, resume=False), torch.device("cpu"), SITES)
    found = load_run(tmp_path / "run")
    assert len(found.kept_rounds()) > 1
    write_report([found], tmp_path / "page.html")
    assert words in (tmp_path / "page.html").read_text(encoding="utf-8")
