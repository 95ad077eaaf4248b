"""What privacy costs, on run folders whose answer is known by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import pytest

from fedkge.reports.compared.experiments import experiments
from fedkge.reports.compared.frontier import (
    Choice,
    Difference,
    Frontier,
    frontier_rows,
    frontiers,
)
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.load import load_runs
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.frontier_section import (
    cautions,
    each_epsilon,
    frontier_figures,
    meaning,
    privacy_cost,
)
from fedkge.reports.pages.sections import sections
from run_folders import write_run


def cost(site: str, epsilon: float, guarantee: str = "formal", delta: float = 1e-6) -> dict[str, Any]:
    return {
        "site": site,
        "epsilon": epsilon,
        "delta": delta,
        "unit": "triple",
        "neighbours": "zero-out-one",
        "accountant": "pld" if guarantee == "formal" else "rdp-paper",
        "guarantee": guarantee,
        "releases": 120,
        "mechanism": "Gaussian noise 1.6 on every row",
        "sampling": "Poisson, rate 0.1",
    }


def write(
    folder: Path,
    mode: str,
    hits: float,
    *,
    spent: Sequence[dict[str, Any]] = (),
    options: Sequence[str] = (),
    seed: int = 0,
    **kind: Any,
) -> None:
    """A run that reached `hits`, and a third of it as MRR."""
    marked = ["marks.share=0.5"] if not any(option.startswith("marks.") for option in options) else []
    given = [*marked, *options, f"privacy.mode={mode}"]
    path = write_run(folder, "fede", seed=seed, last=5, options=given, **kind)
    summary = json.loads((path / "summary.json").read_text())
    summary["metrics"]["test"] |= {"hits@10": hits, "mrr": hits / 3}
    summary["privacy"] = list(spent)
    (path / "summary.json").write_text(json.dumps(summary))


def seeds(folder: Path, mode: str, hits: Sequence[float], **kind: Any) -> None:
    for seed, value in enumerate(hits):
        write(folder / f"seed-{seed}", mode, value, seed=seed, **kind)


def strict(folder: Path, epsilon: float, hits: Sequence[float], *options: str, **kind: Any) -> None:
    spent = [cost("airline", epsilon / 2), cost("languages", epsilon)]
    own = [f"privacy.epsilon={epsilon}", "privacy.delta=1e-6", "privacy.rules=strict", *options]
    seeds(folder, "strict", hits, spent=spent, options=own, **kind)


def paper(folder: Path, epsilon: float, hits: Sequence[float], mode: str = "paper") -> None:
    own = [f"privacy.epsilon={epsilon}", "privacy.delta=1e-6", "privacy.rules=paper"]
    seeds(folder, mode, hits, spent=[cost("airline", epsilon, "none")], options=own)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """0.417 ± 0.002 without, 0.45 ± 0.001 openly, 0.418 ± 0.001 at ε = 2 and 0.432 ± 0.001 at ε = 10."""
    seeds(tmp_path / "u-only", "u-only", (0.415, 0.417, 0.419))
    seeds(tmp_path / "off", "off", (0.449, 0.450, 0.451))
    strict(tmp_path / "strict10", 10.0, (0.431, 0.432, 0.433))
    strict(tmp_path / "strict2", 2.0, (0.417, 0.418, 0.419))
    return tmp_path


def only(folder: Path) -> Frontier:
    (found,) = frontiers(experiments(load_runs([folder])))
    return found


def runs(folder: Path) -> list[Run]:
    return load_runs([folder])


def test_rows_go_from_no_epsilon_to_none_at_all(folder: Path) -> None:
    rows = frontier_rows(runs(folder))
    modes = ["without confidential triples (u-only)", "strict", "strict", "no protection (off)"]
    assert [row["mode"] for row in rows] == modes
    assert [row["epsilon"] for row in rows] == [0.0, 2.0, 10.0, inf]
    assert [row["delta"] for row in rows] == [None, 1e-6, 1e-6, None]
    assert [row["guarantee"] for row in rows] == ["formal", "formal", "formal", "none"]
    assert [row["accountant"] for row in rows] == [None, "pld", "pld", None]
    assert [row["seeds"] for row in rows] == [3, 3, 3, 3]
    assert [row["hits@10"] for row in rows] == pytest.approx([0.417, 0.418, 0.432, 0.45])
    assert [row["hits@10_std"] for row in rows] == pytest.approx([0.002, 0.001, 0.001, 0.001])
    assert [row["mrr"] for row in rows] == pytest.approx([0.139, 0.418 / 3, 0.144, 0.15])
    assert rows[0]["gain"] is None
    assert [row["gain"] for row in rows[1:]] == pytest.approx([0.001, 0.015, 0.033])


def test_epsilon_is_the_largest_and_the_guarantee_the_weakest_over_sites_and_seeds(tmp_path: Path) -> None:
    noise = ["privacy.noise=1.0", "privacy.delta=1e-6"]
    first = [cost("airline", 3.0), cost("languages", 1.0, "none")]
    write(tmp_path / "0", "strict", 0.4, options=noise, spent=first)
    write(tmp_path / "1", "strict", 0.4, options=noise, spent=[cost("airline", 3.5)], seed=1)
    (group,) = experiments(runs(tmp_path))
    choice = Choice(group)
    assert (choice.epsilon, choice.guarantee) == (3.5, "none")
    assert choice.told("accountant") == "pld, rdp-paper"


def test_a_gain_is_seen_when_it_is_more_than_both_deviations_together(folder: Path) -> None:
    small, large = only(folder).lines["strict"]
    without = only(folder).without(large)
    assert without is not None
    assert large.minus(without, "hits@10") == pytest.approx((0.015, 0.003))
    assert large.minus(without, "hits@10").seen
    assert not small.minus(without, "hits@10").seen
    assert Difference(-0.02, 0.003).seen
    assert not Difference(0.5, None).seen


def test_sentences_follow_from_the_numbers(folder: Path) -> None:
    frontier = only(folder)
    assert meaning(frontier) == [
        "Leaving confidential triples out (u-only, ε = 0) reaches Hits@10 0.4170 ± 0.0020.",
        "Training on them without protection (off) reaches 0.4500 ± 0.0010: the most there is to gain from "
        "them is +0.0330.",
        "The smallest ε of strict with a gain that can be seen is 10.",
    ]
    small, large = each_epsilon(frontier)
    assert small == (
        "strict at ε = 2 reaches 0.4180 ± 0.0010: a difference of +0.0010, no more than the spread between "
        "seeds (0.0030): at this ε the confidential triples add nothing that can be seen. Against no "
        "protection: −0.0320, more than the spread between seeds (0.0020)."
    )
    assert large == (
        "strict at ε = 10 reaches 0.4320 ± 0.0010: training on confidential triples gains 0.0150, which "
        "is more than the spread between seeds (0.0030). Against no protection: −0.0180, more than the "
        "spread between seeds (0.0020)."
    )
    assert len(cautions(frontier)) == 1  # each ε is of one run


def test_noise_that_costs_more_than_triples_give_is_said(tmp_path: Path) -> None:
    seeds(tmp_path / "u-only", "u-only", (0.41, 0.412))
    strict(tmp_path / "strict1", 1.0, (0.30, 0.302))
    strict(tmp_path / "strict2", 2.0, (0.35, 0.352))
    frontier = only(tmp_path)
    assert "loses 0.1100" in each_epsilon(frontier)[0]
    assert "the noise costs more than they give" in each_epsilon(frontier)[0]
    said = " ".join(meaning(frontier))
    assert "At no ε here does strict gain more than the spread between seeds" in said
    assert "No experiment here is without protection" in said


def test_triples_that_add_nothing_even_openly_are_said(tmp_path: Path) -> None:
    seeds(tmp_path / "u-only", "u-only", (0.41, 0.42))
    seeds(tmp_path / "off", "off", (0.411, 0.421))
    strict(tmp_path / "strict", 1.0, (0.30, 0.302))
    assert "even so the confidential triples add nothing that can be seen" in meaning(only(tmp_path))[1]


def test_one_seed_has_no_spread_and_without_u_only_there_is_no_gain(tmp_path: Path) -> None:
    write(tmp_path / "u-only", "u-only", 0.417)
    strict(tmp_path / "strict", 10.0, (0.432,))
    (said,) = each_epsilon(only(tmp_path))
    assert said == (
        "strict at ε = 10 reaches 0.4320: training on confidential triples gains 0.0150 (one seed: the "
        "spread between seeds is unknown)."
    )
    assert any("run several" in text for text in cautions(only(tmp_path)))
    strict(tmp_path / "other" / "strict", 10.0, (0.432,))
    write(tmp_path / "other" / "off", "off", 0.45)
    lacking = only(tmp_path / "other")
    assert "cannot be said" in meaning(lacking)[0]
    assert each_epsilon(lacking) == ["strict at ε = 10 reaches 0.4320. Against no protection: −0.0180."]


def test_paper_rules_and_full_protection_are_told_apart(folder: Path) -> None:
    paper(folder / "paper", 4.0, (0.44, 0.442))
    paper(folder / "full", 4.0, (0.3, 0.302), mode="fulldp")
    frontier = only(folder)
    assert list(frontier.lines) == ["strict", "paper", "fulldp (paper rules)"]
    assert "ε of paper rules is what the paper would print; it is no guarantee." in cautions(frontier)
    assert any(text.startswith("fulldp protects all triples") for text in cautions(frontier))
    rows = {row["mode"]: row for row in frontier_rows(runs(folder))}
    assert rows["fulldp (paper rules)"]["gain"] is None  # with all triples confidential none are left
    assert rows["paper"]["guarantee"] == "none"
    traces = {trace["name"]: trace for trace in frontier_figures(frontier)[0].data if "name" in trace}
    hollow = traces["paper: no guarantee"]
    assert hollow["marker"]["symbol"].endswith("-open")
    assert hollow["meta"]["dash"] == 1
    assert traces["strict"]["meta"]["dash"] == 0
    assert not traces["strict"]["marker"]["symbol"].endswith("-open")


def test_points_stand_at_their_epsilon_with_whiskers_and_levels_reach_across(folder: Path) -> None:
    hits, mrr = frontier_figures(only(folder))
    traces = {trace["name"]: trace for trace in hits.data if "name" in trace}
    line = traces["strict"]
    assert line["x"] == [2.0, 10.0]
    assert line["y"] == pytest.approx([0.418, 0.432])
    assert line["error_y"]["array"] == pytest.approx([0.001, 0.001])
    for told in ("ε = 10, ", "δ = 1e-06", "guarantee: formal", "accountant: pld", "Gaussian noise 1.6"):
        assert told in line["text"][1]
    level = traces["without confidential triples (u-only)"]
    assert level["y"] == pytest.approx([0.417, 0.417])
    assert level["x"][0] < 2.0 < 10.0 < level["x"][1]
    bands = [trace["y"][0] for trace in hits.data if "name" not in trace]
    assert bands == pytest.approx([0.415, 0.419, 0.449, 0.451])
    assert hits.layout["xaxis"]["type"] == "log"
    assert mrr.title == "Test MRR over ε"


def test_only_what_differs_in_privacy_seed_and_budget_is_on_one_frontier(folder: Path) -> None:
    strict(folder / "dim", 10.0, (0.5,), "model.dim=64")
    write(folder / "dim-off", "off", 0.6, options=["model.dim=64"])
    strict(folder / "longer", 4.0, (0.425,), "rounds=90", "trainer.epochs=5")
    strict(folder / "other-marks", 3.0, (0.2,), "marks.share=0.2")
    found = {frontier.label: frontier for frontier in frontiers(experiments(runs(folder)))}
    wide, narrow = "fede, transe on atlas · dim=128", "fede, transe on atlas · dim=64"
    assert {label: len(frontier.choices) for label, frontier in found.items()} == {wide: 5, narrow: 2}
    assert {key: set(values) for key, values in found[wide].differing().items()} == {
        "rounds": {60, 90},
        "trainer.epochs": {3, 5},
    }
    assert any("rounds (" in text and "trainer.epochs (" in text for text in cautions(found[wide]))
    assert found[narrow].differing() == {}
    shown = privacy_cost(Canvas(), runs(folder))
    assert "Not compared" in shown
    assert "share=0.2" in shown.split("Not compared")[1]


def test_training_openly_needs_no_marks_to_be_compared(tmp_path: Path) -> None:
    strict(tmp_path / "half", 2.0, (0.4,))
    strict(tmp_path / "fifth", 2.0, (0.4,), "marks.share=0.2")
    write_run(tmp_path / "off", "fede", last=5)  # its config says nothing about privacy or marks
    found = frontiers(experiments(runs(tmp_path)))
    assert [[choice.mode for choice in frontier.choices] for frontier in found] == [["strict", "off"]] * 2


def test_options_tuned_for_each_epsilon_are_one_line_and_at_one_epsilon_several(folder: Path) -> None:
    strict(folder / "tuned", 4.0, (0.425,), "privacy.lr=0.01")
    assert [choice.epsilon for choice in only(folder).lines["strict"]] == [2.0, 4.0, 10.0]
    assert only(folder).differing() == {"privacy.lr": [None, 0.01]}
    strict(folder / "same", 10.0, (0.4,), "privacy.lr=0.01")
    lines = only(folder).lines
    assert {name: [choice.epsilon for choice in of] for name, of in lines.items()} == {
        "strict": [2.0, 10.0],
        "strict · lr=0.01": [4.0, 10.0],
    }


def test_each_is_compared_with_what_had_the_same_budget(folder: Path) -> None:
    write(folder / "u-long", "u-only", 0.43, options=["rounds=90"])
    strict(folder / "long", 4.0, (0.44,), "rounds=90")
    frontier = only(folder)
    rounds = {}
    for choice in frontier.lines["strict"]:
        base = frontier.without(choice)
        assert base is not None
        rounds[choice.epsilon] = base.experiment.first.config["rounds"]
    assert rounds == {2.0: 60, 4.0: 90, 10.0: 60}
    assert "Leaving confidential triples out (u-only · rounds=90, ε = 0) reaches Hits@10 0.4300." in meaning(
        frontier
    )


def test_an_epsilon_that_is_not_known_is_listed_and_not_drawn(folder: Path) -> None:
    seeds(folder / "lost", "strict", (0.42,), options=["privacy.epsilon=5.0", "privacy.delta=1e-5"])
    frontier = only(folder)
    assert any("ε of 1 of 3 experiments" in text for text in cautions(frontier))
    (line,) = [trace for trace in frontier_figures(frontier)[0].data if trace.get("name") == "strict"]
    assert line["x"] == [2.0, 10.0]
    assert [row["epsilon"] for row in frontier_rows(runs(folder))] == [0.0, 2.0, 10.0, None, inf]


def test_deltas_that_differ_are_said(folder: Path) -> None:
    own = ["privacy.epsilon=5.0", "privacy.delta=1e-5"]
    spent = [cost("airline", 5.0, delta=1e-5)]
    seeds(folder / "other", "strict", (0.42,), options=own, spent=spent)
    assert any(text.startswith("δ differs") for text in cautions(only(folder)))


def test_the_page_has_the_section_only_where_there_is_something_to_compare(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    canvas = Canvas()
    content = sections(runs(folder), canvas)["What privacy costs"]
    assert [figure.title for figure in canvas.figures.values() if "over ε" in figure.title] == [
        "Test Hits@10 over ε",
        "Test MRR over ε",
    ]
    assert "the smallest" in content.lower()
    canvas.json()  # ∞ is no JSON
    assert privacy_cost(Canvas(), runs(folder / "strict2")) == ""
    open_ = tmp_path_factory.mktemp("open")
    write(open_ / "off", "off", 0.4)
    write(open_ / "u-only", "u-only", 0.4)
    assert privacy_cost(Canvas(), runs(open_)) == ""


def test_a_run_that_has_not_ended_is_left_out(folder: Path) -> None:
    write_run(
        folder / "going", "fede", last=5, ended=False, options=["marks.share=0.5", "privacy.mode=strict"]
    )
    assert len(only(folder).choices) == 4
    assert "Not compared" not in privacy_cost(Canvas(), runs(folder))


def test_many_sentences_are_folded_away(folder: Path) -> None:
    for epsilon in (1.0, 3.0, 5.0, 7.0, 20.0):
        strict(folder / f"more{epsilon}", epsilon, (0.42,))
    assert "Each ε in words" in privacy_cost(Canvas(), runs(folder))


def test_rows_and_the_page_name_the_unit_of_each_epsilon(tmp_path: Path) -> None:
    person = {**cost("airline", 4.0), "unit": "person"}
    own = ["privacy.epsilon=4.0", "privacy.delta=1e-6", "privacy.unit=entity", 'persons.prefixes=["p/"]']
    write(tmp_path / "persons", "strict", 0.2, spent=[person], options=own)
    write(tmp_path / "off", "off", 0.6, options=['persons.prefixes=["p/"]'])
    runs = load_runs([tmp_path])
    assert [row["unit"] for row in frontier_rows(runs)] == ["person", None]
    page = privacy_cost(Canvas(), runs)
    assert "person</td>" in page
    assert "Unit: one confidential triple" not in page
