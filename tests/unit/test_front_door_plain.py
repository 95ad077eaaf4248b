"""The front door, item 10: reports for people who do not know the metrics; names, labels, paths."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from commands import fedkge, refused, write_home
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.compared.questions import changed, relation_rows
from fedkge.reports.drawing.figure import Canvas, Figure, fitted
from fedkge.reports.folders.load import load_runs
from fedkge.reports.folders.options import tails
from fedkge.reports.pages.html import render
from fedkge.reports.pages.plain import forgotten, headline, hundred
from fedkge.reports.pages.sections import Shown, sections
from run_folders import SITES, write_questions, write_run

STRICT = ("privacy.mode='strict'", "privacy.epsilon=2.0", "privacy.delta=1e-5", "marks.share=0.5")
TRIPLES = [("vienna", "in", "austria"), ("graz", "in", "austria"), ("vienna", "speaks", "german")]


def told(*paths: Path) -> str:
    return re.sub("<[^>]*>", "", unescape(headline(experiments(load_runs(paths)))))


def with_hits(folder: Path, share: float) -> Path:
    """The run, which answers this share of test questions at every site."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    for of in (summary, *summary["sites"].values()):
        of["metrics"]["test"]["hits@10"] = share
    path.write_text(json.dumps(summary))
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    single = with_hits(write_run(tmp_path / "single", "single"), 0.58)
    return single, with_hits(write_run(tmp_path / "fedep", "fedep"), 0.64)


def test_10_the_first_sentence_counts_questions(pair: tuple[Path, Path]) -> None:
    first = "the right answer is among the first 10 in"
    assert told(*pair) == f"With fedep {first} 64 of 100 questions, 58 before, every site alone."
    assert told(pair[1]) == f"T{first[1:]} 64 of 100 questions."
    assert told(pair[0]) == f"T{first[1:]} 58 of 100 questions."


def test_10_joining_that_loses_is_told_as_well(tmp_path: Path) -> None:
    single = with_hits(write_run(tmp_path / "single", "single"), 0.64)
    fedep = with_hits(write_run(tmp_path / "fedep", "fedep"), 0.58)
    assert told(single, fedep).endswith("in 58 of 100 questions, 64 before, every site alone.")


def test_10_before_is_the_other_run_where_nobody_is_alone(tmp_path: Path) -> None:
    one = with_hits(write_run(tmp_path / "a", "fedep"), 0.5)
    two = with_hits(write_run(tmp_path / "b", "fedprox"), 0.6)
    assert told(one, two).endswith("in 60 of 100 questions, 50 before, with fedep.")


def test_10_numbers_that_look_alike_get_a_digit() -> None:
    assert hundred(0.641, 0.58) == ["64", "58"]
    assert hundred(0.641, 0.644) == ["64.1", "64.4"]
    assert hundred(0.64, 0.64) == ["64", "64"]


def test_10_an_unlearned_run_has_a_before(pair: tuple[Path, Path]) -> None:
    of = {"forget": {"hits@10": 0.9, "count": 4}, "test": {"hits@10": 0.7, "count": 50}}
    now = {"forget": {"hits@10": 0.1, "count": 4}, "test": {"hits@10": 0.64, "count": 50}}
    audit = {"standing": {"before": {"local": of}, "after": {"local": now}}}
    (pair[1] / "erasure.json").write_text(json.dumps({"audit": audit}))
    assert told(pair[1]).endswith("64 of 100 questions, 70 before triples were forgotten.")
    assert forgotten(audit) == (
        "By the local tables the right answer is among the first 10 in 10 of 100 questions about what was "
        "forgotten, 90 before; in 64 of 100 test questions, 70 before."
    )
    assert forgotten({}) == ""


def test_10_examples_are_what_joining_made_right_and_wrong(pair: tuple[Path, Path]) -> None:
    single, fedep = pair
    write_questions(single, SITES[0], TRIPLES, [[50, 1, 2], [3, 12, 1]])
    write_questions(fedep, SITES[0], TRIPLES, [[2, 1, 40], [3, 10, 10]])
    groups = experiments(load_runs(pair))
    found = changed(groups[1], groups, 10)
    assert found is not None
    assert (found.questions, found.right, found.wrong) == (6, 2, 1)
    right = [(one.question, one.answer, one.before, one.now) for one in found.examples["right"]]
    assert right == [("? · in · austria", "vienna", 50, 2), ("graz · in · ?", "austria", 12, 10)]
    (wrong,) = found.examples["wrong"]
    assert (wrong.site, wrong.question, wrong.answer) == (SITES[0], "? · speaks · german", "vienna")
    page = render(load_runs(pair))
    assert "? · in · austria" in page
    assert "vienna" not in render(load_runs(pair), Shown(triples=False))


def test_10_questions_of_other_graphs_are_not_compared(pair: tuple[Path, Path]) -> None:
    write_questions(pair[0], SITES[0], TRIPLES, [[50, 1, 2], [3, 12, 1]])
    write_questions(pair[1], SITES[0], TRIPLES[::-1], [[2, 1, 40], [3, 10, 10]])
    groups = experiments(load_runs(pair))
    assert changed(groups[1], groups, 10) is None


def test_10_results_by_relation(pair: tuple[Path, Path]) -> None:
    write_questions(pair[0], SITES[0], TRIPLES, [[50, 1, 2], [3, 12, 1]])
    write_questions(pair[0], SITES[1], TRIPLES[:1], [[1], [99]])
    write_questions(pair[1], SITES[0], TRIPLES, [[2, 1, 40], [3, 10, 11]])
    rows = relation_rows(experiments(load_runs(pair)), 10)
    assert rows == [
        {"relation": "in", "sites": 2, "questions": 6, "single": 0.5, "fedep": 1.0},
        {"relation": "speaks", "sites": 1, "questions": 2, "single": 1.0, "fedep": 0.0},
    ]
    parts = sections(load_runs(pair), Canvas())
    assert "speaks" in parts["Results by relation"]


def test_10_runs_without_questions_say_how_to_add_them(pair: tuple[Path, Path]) -> None:
    parts = sections(load_runs(pair), Canvas())
    assert "--keep-ranks" in parts["Results by relation"]
    assert "What joining changed" not in parts


def test_10_private_runs_begin_with_the_price_and_show_no_triple(tmp_path: Path) -> None:
    marks = ("marks.share=0.5",)
    openly = with_hits(write_run(tmp_path / "off", "fedep", options=("privacy.mode='off'", *marks)), 0.64)
    private = with_hits(write_run(tmp_path / "strict", "fedep", options=STRICT), 0.58)
    single = write_run(tmp_path / "single", "single", options=STRICT)
    write_questions(private, SITES[0], TRIPLES, [[2, 1, 40], [3, 10, 10]])
    write_questions(single, SITES[0], TRIPLES, [[50, 1, 2], [3, 12, 1]])
    assert told(openly, private) == (
        "Privacy costs 6.0 of 100 questions. With protection, the right answer is among the first 10 in 58 "
        "of 100 questions, 64 without protection."
    )
    assert next(iter(sections(load_runs([openly, private]), Canvas()))) == "What privacy costs"
    assert "What privacy costs is not known here" in told(private)
    page = render(load_runs([private, single]))
    assert "What joining changed" in page
    assert "vienna" not in page


def test_10_a_run_has_the_name_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_home(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("as in March", "as in May"):
        done = fedkge("run", "tiny.toml", "--out", f"runs/{name[-3:]}", "--name", name)
        assert done.exit_code == 0, done.output
    shown = fedkge("report", "runs/rch", "runs/May", "--out", "page.html")
    assert shown.exit_code == 0, shown.output
    assert "as in March" in shown.output
    assert "as in May" in Path("page.html").read_text()
    again = fedkge("run", "tiny.toml", "--out", "runs/May", "--resume")  # its name is no other experiment
    assert again.exit_code == 0, again.output
    assert "name: expected a word" in refused("run", "tiny.toml", "--out", "x", "--name", " ")


def test_10_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path / "a", "single", options=("name='mine'",)),
        write_run(tmp_path / "b", "fedep", options=("name='mine'",)),
        write_run(tmp_path / "c" / "x", "fedep"),
        write_run(tmp_path / "d" / "x", "fedep"),
    ]
    labels = [group.label for group in experiments(load_runs(paths))]
    assert labels == ["mine · single", "mine · fedep", "fedep · c/x", "fedep · d/x"]


def test_10_labels_are_not_cut_where_they_differ() -> None:
    long = "x" * 30
    names = [f"{long} one", f"{long} two", f"{long} three {long}", f"{long} seven {long}", "short"]
    found = fitted(names, 24)
    assert len(set(found.values())) == len(names)
    assert found["short"] == "short"
    assert found[names[0]].endswith(" one")
    assert found[names[2]] == names[2], "differs in the middle alone"
    assert fitted(["a" * 40, "b" * 40], 24)["a" * 40] == "a" * 23 + "…"
    traces = [{"type": "scatter", "name": name, "x": [0], "y": [1]} for name in names]
    figure = Figure("t", "l", traces, {}, longest=24)
    assert len({trace["name"] for trace in figure.data}) == len(names)


def test_10_pages_do_not_tell_where_files_lie(tmp_path: Path) -> None:
    options = (f"data.path='{tmp_path}/here/graphs'", f"align.secret='{tmp_path}/keys/secret'")
    one = write_run(tmp_path / "one", "single", options=options)
    two = write_run(tmp_path / "two", "fedep", options=(f"data.path='{tmp_path}/there/graphs'",))
    for paths in ([one], [one, two]):
        assert str(tmp_path) not in render(load_runs(paths))
    assert load_runs([one])[0].config["data"]["path"] == "graphs"
    assert [run.config["data"]["path"] for run in load_runs([one, two])] == ["here/graphs", "there/graphs"]
    assert tails(["/a/b", "/b"]) == {"/a/b": "a/b", "/b": "b"}
    assert tails([r"C:\x\y", "/z/y"]) == {r"C:\x\y": "x/y", "/z/y": "z/y"}
