"""Reports say what run folders say, and nothing that a folder holds can run in the page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from commands import printed
from fedkge.errors import DataError, MissingPackage
from fedkge.reports.compared import tables
from fedkge.reports.compared.baseline import alone
from fedkge.reports.compared.details import budget_rows, config_rows, time_row, trained
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.drawing import curves, plots
from fedkge.reports.drawing.curves import mean_curve
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.load import load_run, load_runs
from fedkge.reports.folders.run import Validation
from fedkge.reports.pages import page
from fedkge.reports.pages.findings import doubts, finding, joining, notices
from fedkge.reports.pages.holdings import overlap_figure
from fedkge.reports.pages.html import cards
from fedkge.reports.pages.markup import difference, seconds, size
from fedkge.reports.pages.sections import configuration, sections
from run_folders import SITES, Away, write_run, write_seeds, write_sweep

HOSTILE = "</script><script>alert(1)</script>"
NAMES = set(re.findall(r"--(\w+):", page.LIGHT))  #: the colours that a plot may ask for


class Outline(HTMLParser):
    """A page's elements, the text of its scripts, and its visible text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self._open = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] += data
        elif self._open != "style":
            self.text.append(data)


@pytest.fixture
def single(tmp_path: Path) -> Path:
    return write_run(tmp_path / "alone")


@pytest.fixture
def together(tmp_path: Path) -> Path:
    return write_run(tmp_path / "pooled", "collective", level=0.4)


def append(folder: Path, *events: dict[str, Any]) -> None:
    with (folder / "run.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"time": 0.0, **event}) + "\n" for event in events)


def plain_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a few kilobytes: plotly's own four megabytes are not what is tested."""
    pytest.importorskip("plotly")
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* plotly */")


def plain(content: str) -> str:
    return re.sub("<.*?>", "", content)


def rendered(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> str:
    from fedkge.reports.pages.html import render

    plain_plotly(monkeypatch)
    return render(load_runs(folders))


# load


def test_a_run_is_what_its_folder_says(single: Path) -> None:
    run = load_run(single)
    assert (run.name, run.method, run.model, run.dataset, run.seed) == (
        "alone",
        "single",
        "transe",
        "atlas",
        0,
    )
    assert list(run.sites) == list(SITES)
    assert run.last_round == 55
    assert set(run.rounds) == set(range(1, 56))
    assert sorted(run.validation()["airline"]) == list(range(5, 56, 5))
    assert run.metrics("test")["mrr"] == run.summary["metrics"]["test"]["mrr"]  # type: ignore[index]
    assert run.environment["torch"] == "2.13.0"


def test_the_kept_round_is_the_first_best_of_all_sites_or_of_each_alone(tmp_path: Path) -> None:
    together = load_run(write_run(tmp_path / "run", "fede"))
    found = together.validations
    best = max(validation.mrr for validation in found.values())
    assert together.kept == dict.fromkeys(SITES, min(n for n, of in found.items() if of.mrr == best))
    assert set(together.kept.values()) == {together.summary["best_round"]}  # type: ignore[index]
    last = dict(zip(SITES, (20, 30, 40, 55), strict=True))
    single = load_run(write_run(tmp_path / "single", last=last))
    courses = single.summary["courses"]  # type: ignore[index]
    assert single.kept == {site: course["best_round"] for site, course in courses.items()}
    assert len(set(single.kept.values())) > 1


def test_a_repeated_round_counts_once_and_as_it_was_last(single: Path) -> None:
    again = {"event": "round", "round": 7, "seconds": 9.0, "triples": 5}
    append(single, {**again, "sites": {"airline": {"loss": 123.0}}})
    run = load_run(single)
    assert run.losses["airline"][7] == 123.0
    assert len(run.rounds) == 55
    assert run.rounds[7].triples == 5


def test_what_came_after_the_checkpoint_is_dropped_on_resume(single: Path) -> None:
    append(single, {"event": "resumed", "round": 20})
    run = load_run(single)
    assert max(run.rounds) == 20
    assert max(run.validations) == 20
    assert run.resumed == 1


def test_a_run_that_was_killed_and_resumed_reads_as_one_that_was_not(tmp_path: Path) -> None:
    whole = load_run(write_run(tmp_path / "whole", "fede"))
    killed = load_run(write_run(tmp_path / "killed", "fede", killed_at=30))
    assert (killed.rounds, killed.validations) == (whole.rounds, whole.validations)
    assert (killed.resumed, whole.resumed) == (1, 0)
    assert killed.sent() == whole.sent()
    assert time_row(killed)["other_seconds"] is None


def test_torn_lines_and_unknown_events_are_passed_over(single: Path) -> None:
    before = load_run(single)
    with (single / "run.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"event": "traffic", "bytes": 5}\n{"event": "round", "roun')
    assert load_run(single) == before


def test_an_unfinished_run_shows_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run", ended=False, last=23)
    run = load_run(folder)
    assert run.summary is None
    assert run.metrics("test") == {}
    row = tables.metric_rows([run])[0]
    assert (row["mrr"], row["rounds"], row["best_round"]) == (None, 23, 20)
    text = " ".join(Outline(rendered(monkeypatch, folder)).text)
    assert "has not ended: round 23 of at most 60" in text
    assert "Training loss" in text


def test_the_run_of_a_hub_has_ended_without_test_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", ended=False, last=23)
    append(folder, {"event": "end"})
    text = " ".join(Outline(rendered(monkeypatch, folder)).text)
    assert "has ended with round 23. The hub has no test results" in text
    assert "has not ended" not in text


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run", ended=False, last=1)
    first = (folder / "run.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[0]
    (folder / "run.jsonl").write_text(first, encoding="utf-8")
    assert "No round has ended yet" in rendered(monkeypatch, folder)


def test_a_site_without_test_questions_has_no_number(
    single: Path, together: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = json.loads((single / "summary.json").read_text(encoding="utf-8"))
    summary["sites"]["airline"]["metrics"]["test"] = {"mrr": float("nan"), "mr": float("nan"), "count": 0}
    (single / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    row = tables.site_rows(load_runs([single, together]))[0]
    assert (row["single"], row["gains"]["collective"]) == (None, None)
    assert "nan" not in "".join(Outline(rendered(monkeypatch, single, together)).text).lower()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.toml", None, "not a run folder; expected one with config.toml"),
        ("config.toml", "seed = [", "config.toml: .*; expected the config.toml of a run"),
        ("config.toml", "seed = 1", "model.name is missing"),
        ("config.toml", 'model = "transe"', "model.name is missing"),
        ("run.jsonl", None, "run.jsonl: no such file"),
        ("run.jsonl", '{"event": "round", "round": 1}', "run.jsonl: a 'round' event that cannot be read"),
        ("summary.json", "{", "summary.json: not JSON"),
        ("summary.json", "[]", "summary.json: cannot be read.*expected metrics.test.mrr"),
        ("summary.json", '{"metrics": {"test": {"mrr": 1}}}', "summary.json: cannot be read"),
    ],
)
def test_a_garbled_folder_is_an_error(single: Path, file: str, content: str | None, message: str) -> None:
    if content is None:
        (single / file).unlink()
    else:
        (single / file).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_run(single)


def test_a_run_is_not_compared_with_itself(single: Path) -> None:
    with pytest.raises(DataError, match="given twice"):
        load_runs([single, single / ".." / "alone"])


# tables


def test_differences_are_from_the_same_site_alone(single: Path, together: Path) -> None:
    runs = load_runs([single, together])
    rows = tables.site_rows(runs)
    assert [row["site"] for row in rows] == [*SITES, "all sites"]
    for row in rows:
        assert row["gains"]["collective"] == pytest.approx(row["collective"] - row["single"])
        assert "single" not in row["gains"]
    assert rows[-1]["collective"] == runs[1].metrics("test")["mrr"]


def test_alone_means_same_model_and_data_and_seed_if_possible(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "a", "single", seed=1),
        write_run(tmp_path / "b", "single", seed=2),
        write_run(tmp_path / "c", "single", model="rotate", seed=2),
        write_run(tmp_path / "d", "single", data="umls", seed=2),
        write_run(tmp_path / "e", "fede", seed=2),
        write_run(tmp_path / "f", "fede", model="complex"),
        write_run(tmp_path / "g", "fedep", seed=9),
    ]
    groups = {group.first.name: group for group in experiments(load_runs(folders))}

    def base(name: str) -> str | None:
        found = alone(groups[name], list(groups.values()))
        return found.first.name if found else None

    assert (base("e"), base("f"), base("g"), base("a")) == ("a", None, "a", None)
    assert [run.name for run in groups["a"].runs] == ["a", "b"]


def test_labels_tell_runs_apart(tmp_path: Path) -> None:
    def names(*options: dict[str, Any]) -> list[str]:
        where = tmp_path / str(len(list(tmp_path.iterdir())))
        folders = [write_run(where / str(i) / "run", **options_) for i, options_ in enumerate(options)]
        return [group.label for group in experiments(load_runs(folders))]

    assert names({"method": "single"}, {"method": "fede"}) == ["single", "fede"]
    assert names({"model": "transe"}, {"model": "rotate"}) == ["single · transe", "single · rotate"]
    assert names({"seed": 0}, {"seed": 1}) == ["single"]
    assert names({"options": ["model.dim=8"]}, {"options": ["model.dim=16"]}) == [
        "single · dim=8",
        "single · dim=16",
    ]
    coded = names({"method": "fede"}, {"method": "fede", "options": ["codec.name=int8"]})
    assert coded == ["fede · float32", "fede · int8"]
    assert len(set(names({}, {}))) == 2


def test_speed_is_what_the_journal_counted(single: Path) -> None:
    row = time_row(load_run(single))
    assert row["triples"] == 55 * 4 * 21_000
    assert row["triples_per_s"] == pytest.approx(21_000 / 0.8)
    assert row["other_seconds"] == pytest.approx(row["train_seconds"] * (1.25 - 1 - 1 / 6 - 1 / 50))
    assert row["seconds"] == pytest.approx(row["train_seconds"] * 1.25)


def test_options_that_differ_are_marked(
    single: Path, together: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {row["option"]: row for row in config_rows(experiments(load_runs([single, together])))}
    assert rows["method.name"]["differs"]
    assert not rows["model.dim"]["differs"]
    assert (rows["method.name"]["single"], rows["method.name"]["collective"]) == ("single", "collective")
    marked = re.findall(
        r'<tr class="marked"><th scope="row">(.*?)</th>', rendered(monkeypatch, single, together)
    )
    assert marked == ["method.name"]


# plots


def test_the_mean_carries_stopped_sites_and_waits_for_late_ones() -> None:
    sites = {"a": {1: 1.0, 2: 2.0}, "b": {2: 4.0, 3: 6.0}, "c": {}}
    assert mean_curve(sites, {"a": 1.0, "b": 3.0, "c": 5.0}) == {
        2: (2.0 + 3 * 4.0) / 4,
        3: (2.0 + 3 * 6.0) / 4,
    }


def test_plotly_accepts_every_figure(tmp_path: Path) -> None:
    figure_of = pytest.importorskip("plotly.graph_objects").Figure
    many = [f"site {i}" for i in range(plots.BARS + 1)]
    away = Away(absent={"8": [3]}, late={"8": [4]}, refused={"7": [5]})
    pages = [
        [
            write_run(tmp_path / "a", sites=[HOSTILE, "7", "8"]),
            write_run(tmp_path / "b", "fede", sites=[HOSTILE, "7", "8"], away=away),
        ],
        [write_run(tmp_path / "c", "fede", sites=many)],
        [write_run(tmp_path / "d", "fede", sites=[HOSTILE, "7", "8"], away=away)],
        [write_seeds(tmp_path / "e", "fede"), write_seeds(tmp_path / "f", "single")],
        [write_sweep(tmp_path / "g", "fedprox", "method.mu", {"0": 0.3, "0.1": 0.31, "1": 0.32})],
    ]
    for folders in pages:
        canvas = Canvas()
        sections(load_runs(folders), canvas)
        assert canvas.figures
        for figure in canvas.figures.values():
            figure_of(data=figure.data, layout=figure.layout)  # raises on an unknown property or value
            assert figure.label
            colours = [str(trace["meta"]["series"]) for trace in figure.data]
            assert {*colours, *(end.series for end in figure.ends)} <= {*NAMES, "heat", "attendance"}


def test_sites_get_small_plots_only_when_runs_are_compared(single: Path, together: Path) -> None:
    own = curves.loss_figures(experiments(load_runs([single])))
    assert [figure.title for figure in own] == ["Training loss"]
    compared = curves.loss_figures(experiments(load_runs([single, together])))
    assert [figure.title for figure in compared[1:]] == list(SITES)
    assert [trace["name"] for trace in compared[1].data] == ["single", "collective"]


def test_a_star_stands_on_the_kept_round(single: Path) -> None:
    run = load_run(single)
    stars = {
        trace["name"]: trace["x"]
        for trace in curves.validation_figures(experiments([run]))[0].data
        if trace.get("marker", {}).get("symbol") == "star"
    }
    assert stars == {site: [number] for site, number in run.kept.items()}


def test_a_diverged_loss_is_a_gap_and_a_notice(single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {"event": "round", "round": 7, "seconds": 1.0, "triples": 5}
    append(single, {**lost, "sites": {"airline": {"loss": float("nan")}}})
    groups = experiments([load_run(single)])
    assert curves.loss_figures(groups)[0].data[0]["y"][6] is None
    assert "diverged at airline" in notices(groups)
    assert "NaN" not in Outline(rendered(monkeypatch, single)).scripts[1]


def test_runs_that_the_budget_has_ended_while_they_rose_are_named(single: Path) -> None:
    run = load_run(single)
    last = run.last_round
    assert max(run.kept.values()) == last

    def said(rounds: int, validations: Mapping[int, Validation]) -> bool:
        other = replace(run, config={**run.config, "rounds": rounds}, validations=validations)
        return any("more rounds may do better" in text for text in doubts(experiments([other])))

    assert said(last, run.validations)
    assert not said(last + 1, run.validations)  # it was validation that ended it
    assert not said(last, {number: of for number, of in run.validations.items() if number < last})


def test_the_overlap_is_a_share_of_the_rows_site(single: Path) -> None:
    run = load_run(single)
    figure = overlap_figure(run)
    assert figure is not None
    counts = run.summary["overlap"]["entities"]  # type: ignore[index]
    assert figure.data[0]["z"][1][2] == counts[1][2] / counts[1][1]
    assert figure.data[0]["z"][1][1] is None


# the page


def test_the_finding_tells_private_from_pooled(tmp_path: Path, single: Path, together: Path) -> None:
    runs = load_runs([single, write_run(tmp_path / "fede", "fede", level=0.35), together])
    text = plain(finding(experiments(runs)))
    values = [f"{run.metrics('test')['mrr']:.4f}" for run in runs]
    assert f"keep every graph at its site, fede has the highest test MRR, {values[1]}" in text
    assert f"(collective, not private) gives {values[2]}" in text
    assert text.count("no site loses by joining, 4 of 4 gain") == 2


def test_sites_that_lose_by_joining_are_named(tmp_path: Path, single: Path) -> None:
    """On the whole it gains, and two sites are worse off: the page says so wherever it says the gain."""
    runs = load_runs([single, write_run(tmp_path / "fede", "fede", level=0.34, tilt=0.025)])
    groups = experiments(runs)
    row = next(row for row in tables.site_rows(runs) if row["site"] == "all sites")
    assert row["gains"]["fede"] > 0
    assert "2 of 4 sites gain, 2 lose by joining" in plain(finding(groups))
    assert "2 of 4 sites gain, 2 lose by joining" in plain(cards(groups))
    assert "fede: 2 of 4 sites lose by joining: languages (−0.0258), government (−0.0043)." in plain(
        joining(groups)
    )
    gains = plots.gain_figure(groups)
    assert gains is not None
    assert [value > 0 for value in gains.data[0]["y"]] == [True, True, False, False]


def test_runs_on_different_data_are_not_ranked(tmp_path: Path, single: Path) -> None:
    runs = load_runs([single, write_run(tmp_path / "other", "fede", data="umls")])
    assert "different data" in finding(experiments(runs))
    assert "cannot be compared" in notices(experiments(runs))


def test_what_makes_a_comparison_doubtful_is_said(tmp_path: Path, single: Path) -> None:
    longer = write_run(tmp_path / "fede", "fede", seed=4, options=["rounds=100", "model.dim=256"])
    text = plain(notices(experiments(load_runs([single, longer]))))
    assert "Budgets differ in rounds (60, 100), dim (128, 256)" in text
    assert "Seeds differ (single · rounds=60 · dim=128: 0; fede · rounds=100 · dim=256: 4)" in text
    fair = write_run(tmp_path / "fair", "fede")
    assert notices(experiments(load_runs([single, fair]))) == ""
    summary = json.loads((fair / "summary.json").read_text(encoding="utf-8"))
    summary["sites"]["airline"]["digest"] = "another"
    (fair / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    assert "graphs differ although" in notices(experiments(load_runs([single, fair])))


def test_who_sits_rounds_out_has_less_to_learn_from(tmp_path: Path, single: Path) -> None:
    """Half of the sites train in each round; `single` and `collective` ignore that, and the page says so."""
    odd, even = (dict.fromkeys(SITES[i::2], range(1 + i, 56, 2)) for i in (0, 1))
    half = ["participation.fraction=0.5"]
    folders = [
        write_run(tmp_path / "single", "single", options=half),
        write_run(tmp_path / "fede", "fede", options=half, away=Away(absent={**odd, **even})),
        write_run(tmp_path / "collective", "collective", options=half),
    ]
    groups = experiments(load_runs(folders))
    rows = {row["option"]: row for row in budget_rows(groups)}
    found = [rows["share of rounds trained"][group.label] for group in groups]
    assert (found, [group.label for group in groups]) == ([1, 0.5, 1], ["single", "fede", "collective"])
    assert [rows["rounds trained per site"][group.label] for group in groups] == [55, 27.5, 55]
    told = "Budgets differ in share of rounds trained (1, 0.5), rounds trained per site (55, 27.5)"
    assert told in plain(notices(groups))
    assert "Not every site trained in every round" in configuration(groups)
    assert not notices([groups[0], groups[2]])
    assert "Not every site" not in configuration([groups[0], groups[2]])


def test_a_run_that_validation_ends_sooner_has_the_same_budget(tmp_path: Path) -> None:
    """Each site alone stops by itself; whoever had every round until then sat none out."""
    last = dict(zip(SITES, (20, 30, 40, 55), strict=True))
    folders = [write_run(tmp_path / "a", last=last), write_run(tmp_path / "b", "fede", last=45)]
    begun = write_run(tmp_path / "c", "fedep", ended=False, last=1)
    first = (begun / "run.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[0]
    (begun / "run.jsonl").write_text(first, encoding="utf-8")
    groups = experiments(load_runs([*folders, begun]))
    rows = {row["option"]: row for row in budget_rows(groups)}
    assert [rows["rounds trained per site"][group.label] for group in groups] == [36.25, 45, None]
    assert [rows["share of rounds trained"][group.label] for group in groups] == [1, 1, None]
    assert notices(groups[:2]) == ""
    assert "rounds trained" not in notices(groups)


def test_a_site_that_is_never_asked_again_sits_the_rest_out(tmp_path: Path) -> None:
    away = Away(absent={SITES[0]: range(11, 56)})
    found = trained(load_run(write_run(tmp_path / "run", "fede", away=away)))
    done = 10 + 3 * 55
    assert found == {"share of rounds trained": round(done / 220, 2), "rounds trained per site": done / 4}


def test_pooled_graphs_are_trained_as_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "collective")
    journal = folder / "run.jsonl"
    events = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    for event in events:
        if event["event"] == "round":
            event |= {"participants": ["collective"], "sites": {"collective": {"loss": 1.0}}}
    journal.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    assert trained(load_run(folder)) == {"share of rounds trained": 1, "rounds trained per site": 55}


def test_marks_that_a_seed_drew_are_no_other_graph(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / str(seed), seed=seed, options=["marks.share=0.5"]) for seed in (0, 1)]
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        summary["sites"]["airline"]["digest"] = folder.name
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    assert "graphs differ" not in notices(experiments(load_runs(folders)))


def test_marks_that_persons_make_are_no_other_graph_but_another_split_is(tmp_path: Path) -> None:
    persons = 'persons.prefixes=["patient/"]'
    own = [persons, "privacy.mode=strict", "privacy.unit=entity", "privacy.noise=1.0", "privacy.delta=1e-6"]
    folders = [write_run(tmp_path / "off", options=[persons]), write_run(tmp_path / "strict", options=own)]
    file = folders[1] / "summary.json"
    summary = json.loads(file.read_text(encoding="utf-8"))
    summary["sites"]["airline"]["digest"] = "marked"
    file.write_text(json.dumps(summary), encoding="utf-8")
    assert "graphs differ" not in notices(experiments(load_runs(folders)))
    summary["sites"]["airline"]["triples"]["test"] += 1
    file.write_text(json.dumps(summary), encoding="utf-8")
    assert "graphs differ" in notices(experiments(load_runs(folders)))


def test_names_cannot_break_out_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = [HOSTILE, "a & 'b' \"c\"", "<img src=x onerror=alert(1)>"]
    folders = [
        write_run(tmp_path / "x", sites=sites, model=HOSTILE, data=HOSTILE),
        write_run(tmp_path / "y", HOSTILE, sites=sites, model=HOSTILE, data=HOSTILE),
    ]
    content = rendered(monkeypatch, *folders)
    outline = Outline(content)
    assert len(outline.scripts) == 3
    assert not any(tag == "img" for tag, _ in outline.elements)
    assert not any(name.startswith("on") for _, attributes in outline.elements for name in attributes)
    text = "".join(outline.text)
    assert all(site in text for site in sites)
    figures = json.loads(outline.scripts[1])
    assert "<" not in outline.scripts[1]
    assert any("&lt;/script&gt;" in json.dumps(figure) for figure in figures.values())


def test_nothing_is_fetched(single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outline = Outline(rendered(monkeypatch, single))
    links = [
        value
        for _, attributes in outline.elements
        for name in ("src", "href")
        if (value := attributes.get(name))
    ]
    assert links
    assert all(link.startswith("#") for link in links)
    policies = [a["content"] for _, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [page.POLICY]
    assert page.POLICY.startswith("default-src 'none';")
    assert "http" not in page.POLICY + page.STYLE + page.SCRIPT


def test_the_page_is_accessible(single: Path, together: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outline = Outline(rendered(monkeypatch, single, together))
    tags = [tag for tag, _ in outline.elements]
    assert ("html", {"lang": "en"}) in outline.elements
    assert tags.count("h1") == tags.count("title") == tags.count("main") == 1
    assert all(a.get("scope") in ("row", "col") for tag, a in outline.elements if tag == "th")
    drawn = [a for _, a in outline.elements if a.get("class") == "plot"]
    assert drawn
    assert all(a["role"] == "img" and a["aria-label"] for a in drawn)
    ids = [a["id"] for _, a in outline.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["id"] for a in drawn} == set(json.loads(outline.scripts[1]))


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [page.LIGHT, page.DARK], ids=["light", "dark"])
def test_both_schemes_can_be_read(scheme: str) -> None:
    colours = dict(re.findall(r"--(\w+): (#\w{6});", scheme))
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for text in ("ink", "soft", "accent", "gain", "loss"):
        assert contrast(colours[text], colours["panel"]) >= 4.5, text
    for text in ("ink", "soft", "accent"):
        assert contrast(colours[text], colours["page"]) >= 4.5, text
    for ground in ("mark", "heat0", "heat1", "att0", "att1", "att2", "att3"):
        assert contrast(colours["ink"], colours[ground]) >= 4.5, ground
    for line in (*(f"s{i}" for i in range(8)), "plain", "alone", "pooled", "up", "down"):
        assert contrast(colours[line], colours["panel"]) >= 3, line
    for part in range(5):
        assert contrast(colours[f"part{part}"], colours["panel"]) >= 3, part


def test_both_schemes_define_the_same_variables() -> None:
    names = [set(re.findall(r"--(\w+):", scheme)) for scheme in (page.LIGHT, page.DARK)]
    assert names[0] == names[1]
    used = set(re.findall(r"var\(--(\w+)\)", page.STYLE)) | set(
        re.findall(r'variable\("--(\w+)"\)', page.SCRIPT)
    )
    assert used <= names[0]


def test_numbers_are_written_for_people() -> None:
    assert [seconds(s) for s in (0.04, 59.94, 61, 3725)] == ["0.0 s", "59.9 s", "1 min 1 s", "1 h 2 min"]
    assert [plain(difference(d)) for d in (-0.01234, 0.5, 0.0)] == ["−0.0123", "+0.5000", "±0.0000"]
    assert [size(n) for n in (0, 999, 1234, 45_600_000, 2e12)] == [
        "0 B",
        "999 B",
        "1.23 kB",
        "45.6 MB",
        "2.00 TB",
    ]


def test_only_reports_are_replaced(tmp_path: Path, single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedkge.reports.pages.html import write_report

    plain_plotly(monkeypatch)
    runs, out = load_runs([single]), tmp_path / "new" / "report.html"
    write_report(runs, out)
    first = out.read_text(encoding="utf-8")
    write_report(runs, out)
    assert out.read_text(encoding="utf-8") == first
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    diary = tmp_path / "diary.html"
    diary.write_text("dear diary", encoding="utf-8")
    with pytest.raises(DataError, match=r"diary.html: exists and is no report"):
        write_report(runs, diary)
    assert diary.read_text(encoding="utf-8") == "dear diary"
    with pytest.raises(DataError, match="cannot be written"):
        write_report(runs, diary / "report.html")


def test_without_plotly_the_user_is_told(single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedkge.reports.pages.html import render

    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(MissingPackage, match=r"a report needs plotly.*fedkge\[report\]"):
        render(load_runs([single]))


def test_reports_import_no_torch() -> None:
    heavy = "{'torch', 'plotly', 'numpy'}"
    code = f"import sys, fedkge.reports.pages.html; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# the command


def invoke(*arguments: str | Path) -> Any:
    from fedkge.cli.main import app

    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command_writes_beside_the_run(single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_plotly(monkeypatch)
    result = invoke(single)
    assert result.exit_code == 0, result.output
    assert (single / "report.html").is_file()
    assert "all sites" in result.output
    assert f"{load_run(single).metrics('test')['mrr']:.4f}" in result.output


def test_the_command_speaks_json(
    single: Path, together: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_plotly(monkeypatch)
    result = invoke(single, together, "--out", tmp_path, "--json")
    found = printed(result.output)
    assert found["report"] == str(tmp_path / "report.html")
    assert [row["run"] for row in found["metrics"]] == ["single", "collective"]
    assert found["sites"][0]["gains"]["collective"] > 0


def test_the_command_fails_clearly(tmp_path: Path) -> None:
    result = invoke(tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "not a run folder" in result.output
