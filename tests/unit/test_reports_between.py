"""What a method noted between sites is on the page number by number: the kept round, and the way there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedkge.errors import DataError
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.drawing.plots import CELLS
from fedkge.reports.folders.load import load_run, load_runs
from fedkge.reports.pages.between_section import FACETS, between_sites, compact, courses, silent
from fedkge.reports.pages.sections import sections
from run_folders import SITES, Away, write_run, write_seeds

Note = Callable[[int, int, int], float]  # round, row, column -> number
HEADING = "Between sites"


def drifting(number: int, row: int, column: int) -> float:
    return 0.1 * row + 0.01 * column + 0.0001 * number * (row + 1)


def constant(number: int, row: int, column: int) -> float:
    return 0.25


def noted(folder: Path, note: Note = drifting, **options: Any) -> Path:
    """A run whose method has said something about every validated round."""
    sites = options.get("sites", SITES)
    write_run(folder, "pfedeg", **options)
    lines = []
    for line in (folder / "run.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "evaluate":
            values = [[note(event["round"], i, j) for j in range(len(sites))] for i in range(len(sites))]
            event["notes"] = {"affinity": {"sites": list(sites), "values": values}}
        lines.append(json.dumps(event))
    (folder / "run.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def drawn(*paths: Path) -> tuple[str, Canvas]:
    page = Canvas()
    return between_sites(page, experiments(load_runs(paths))), page


def test_every_validated_round_is_read(tmp_path: Path) -> None:
    run = load_run(noted(tmp_path / "run"))
    (name, course) = next(iter(courses(run).items()))
    assert name == "affinity"
    assert list(course) == list(range(5, 60, 5))
    assert course[35].sites == list(SITES)
    assert course[35].values[2][1] == pytest.approx(drifting(35, 2, 1))


def test_the_map_is_of_the_round_that_was_kept(tmp_path: Path) -> None:
    path = noted(tmp_path / "run")
    (kept,) = set(load_run(path).kept.values())
    html, page = drawn(path)
    assert f"after round {kept}, whose tables are kept" in html
    heat, moved, *own = page.figures.values()
    (trace,) = heat.data
    assert trace["z"] == [[drifting(kept, i, j) for j in range(4)] for i in range(4)]
    assert (trace["zmin"], trace["zmax"]) == (0.0, drifting(kept, 3, 3))
    assert f"{drifting(kept, 3, 1):.4g}</td>" in html, "the table has the numbers too"
    assert kept not in (5, 55), "neither the first nor the last"
    assert len(own) == len(SITES)
    assert [trace["y"][-1] for trace in moved.data] == pytest.approx(
        [sum(0.0001 * 50 * (i + 1) for _ in SITES) / 2 for i in range(4)]
    )
    assert own[1].title == "affinity of gazetteer"
    assert [trace["y"][0] for trace in own[1].data] == [drifting(5, 1, j) for j in range(4)]
    colours = [trace["meta"]["series"] for trace in moved.data]
    assert [trace["meta"]["series"] for trace in own[0].data] == colours


def test_a_site_that_has_sent_nothing_is_left_blank(tmp_path: Path) -> None:
    """Of two that nobody hears, one has answered: it is like nobody, which is a finding about it."""

    def unheard(number: int, row: int, column: int) -> float:
        heard = column not in (1, 2) if number < 55 else True
        return float(row == column) if row in (1, 2) and number < 55 else 0.25 * heard

    absent = Away(absent={SITES[1]: range(1, 53), SITES[3]: range(1, 53)})
    path = noted(tmp_path / "run", unheard, away=absent)
    course = courses(load_run(path))["affinity"]
    assert silent(course[50]) == [SITES[1]], "the last one is absent too, but heard"
    assert silent(course[55]) == []
    html, page = drawn(path)
    heat, moved, *own = page.figures.values()
    (kept,) = set(load_run(path).kept.values())
    assert kept < 55
    x = None
    assert heat.data[0]["z"] == [[0.25, x, 0, 0.25], [x, x, x, x], [0, x, 1, 0], [0.25, x, 0, 0.25]]
    assert heat.data[0]["text"][1] == ["", "", "", ""]
    told = f"Blank: {SITES[1]} had not sent anything to the hub by then.</figcaption>"
    assert html.count(told) == 2, "at the map and at the table"
    lines = {trace["name"]: dict(zip(trace["x"], trace["y"], strict=True)) for trace in moved.data}
    assert lines[SITES[1]] == {55: 0.0}, "before that it had no row"
    assert lines[SITES[0]][50] == 0
    assert lines[SITES[0]][55] == pytest.approx(0.25), "two sites that had no weight have a quarter each"
    assert own[1].data[0]["y"] == [None] * 10 + [0.25]
    assert own[0].data[1]["y"] == [None] * 10 + [0.25]


def test_a_round_that_came_to_nothing_lets_nobody_be_heard(tmp_path: Path) -> None:
    folder = noted(tmp_path / "run", lambda number, row, column: float(row == column), last=5)
    text = (folder / "run.jsonl").read_text()
    assert silent(courses(load_run(folder))["affinity"][5]) == []
    (folder / "run.jsonl").write_text(text.replace('"event": "round"', '"void": true, "event": "round"'))
    assert silent(courses(load_run(folder))["affinity"][5]) == list(SITES)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.33333, "0.333"),
        (1.0, "1.000"),
        (0.01, "0.010"),
        (0.00234, "0.0023"),
        (2.38e-5, "2.4e-5"),
        (5e-5, "5e-5"),
        (3.2e-12, "3.2e-12"),
        (-2.38e-5, "-2.4e-5"),
        (12345.0, "1.2e4"),
        (0.0, "0"),
        (float("nan"), ""),
    ],
)
def test_small_numbers_have_two_digits_in_their_cells(value: float, shown: str) -> None:
    assert compact(value) == shown


def test_the_map_shows_them(tmp_path: Path) -> None:
    _, page = drawn(noted(tmp_path / "run", lambda number, row, column: 4.2e-5 if row == column else 0.5))
    trace = next(iter(page.figures.values())).data[0]
    assert trace["text"][0] == ["4.2e-5", "0.500", "0.500", "0.500"]
    assert trace["texttemplate"] == "%{text}"


def test_what_never_changes_is_said_in_words(tmp_path: Path) -> None:
    html, page = drawn(noted(tmp_path / "run", constant))
    assert "affinity is the same in every round" in html
    assert len(page.figures) == 1


def test_experiments_are_told_apart_and_of_seeds_the_first_is_shown(tmp_path: Path) -> None:
    noted(tmp_path / "a" / "seed-1", seed=1)
    noted(tmp_path / "a" / "seed-0", constant)
    write_seeds(tmp_path / "b", "fedep")
    runs = load_runs([tmp_path / "a", tmp_path / "b"])
    html = sections(runs, Canvas())[HEADING]
    assert "pfedeg, seed 0: after round" in html
    assert "seed 1" not in html
    assert "fedep" not in html


def test_without_notes_there_is_no_such_part(tmp_path: Path) -> None:
    assert HEADING not in sections([load_run(write_run(tmp_path / "run", "fedep"))], Canvas())


def test_a_run_that_has_just_begun_has_a_map_alone(tmp_path: Path) -> None:
    html, page = drawn(noted(tmp_path / "run", ended=False, last=7))
    assert "after round 5" in html
    assert "in every round" not in html
    assert len(page.figures) == 1


@pytest.mark.parametrize(("count", "figures"), [(FACETS + 1, 2), (CELLS + 1, 1)])
def test_of_many_sites_there_is_less(tmp_path: Path, count: int, figures: int) -> None:
    html, page = drawn(noted(tmp_path / "run", sites=[f"site {i}" for i in range(count)]))
    assert len(page.figures) == figures
    assert html.count("<tr>") == count + 1


def test_a_site_s_name_is_never_markup(tmp_path: Path) -> None:
    html, page = drawn(noted(tmp_path / "run", sites=["<b>", "7"]))
    assert "<b>" not in html
    assert "<b>" not in page.json()


@pytest.mark.parametrize("values", [[[1.0]], [[1.0, 2.0]] * 4, [], "1"], ids=str)
def test_numbers_that_are_not_between_the_sites_are_an_error(tmp_path: Path, values: Any) -> None:
    folder = write_run(tmp_path / "run", "pfedeg")
    note = {"affinity": {"sites": list(SITES), "values": values}}
    event = {"event": "evaluate", "round": 60, "split": "valid", "sites": {}, "mrr": 0.1, "notes": note}
    with (folder / "run.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")
    with pytest.raises(DataError, match="a 'evaluate' event that cannot be read"):
        load_run(folder)
