"""What travelled is told byte for byte, and who was missing is not passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedkge.reports.compared.experiments import experiments
from fedkge.reports.drawing.curves import bytes_figures, own_bytes_figures
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.load import load_run, load_runs
from fedkge.reports.pages.findings import notices
from fedkge.reports.pages.sections import sections
from fedkge.reports.pages.traffic import (
    Attendance,
    attendance,
    attendance_figure,
    round_traffic_rows,
    site_traffic_rows,
    traffic_rows,
)
from run_folders import SITES, TRAFFIC, Away, write_run, write_seeds

AWAY = Away(absent={"airline": [3, 4]}, late={"languages": [7, 8, 9]}, refused={"government": [12]})
LINKS = [
    {
        "axis": "entity",
        "given": 120,
        "used": 117,
        "left_out": 3,
        "within_site": 0,
        "unmatched": 0,
        "examples": ["Georgia ~ Georgia"],
    }
]


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    return write_run(tmp_path / "partial", "fedep", away=AWAY, links=LINKS)


def test_what_was_sent_so_far_is_the_sum_of_the_journal(partial: Path) -> None:
    run = load_run(partial)
    events = [json.loads(line) for line in (partial / "run.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "round"]
    for direction in ("up_bytes", "down_bytes"):
        by_ten = sum(event[direction] for event in rounds if event["round"] <= 10)
        assert run.sent(direction)[10] == by_ten
    assert run.sent()[10] == run.sent("up_bytes")[10] + run.sent("down_bytes")[10]
    assert run.sent()[55] == run.traffic.bytes
    assert [row["bytes"] for row in round_traffic_rows(run)] == [
        event["up_bytes"] + event["down_bytes"] for event in rounds
    ]


def test_a_run_that_goes_on_counts_what_its_journal_has(tmp_path: Path) -> None:
    ended = load_run(write_run(tmp_path / "ended", "fede", last=12))
    going = load_run(write_run(tmp_path / "going", "fede", last=12, ended=False))
    assert going.traffic == ended.traffic
    for own, other in zip(site_traffic_rows(going), site_traffic_rows(ended), strict=True):
        assert [own[name] for name in TRAFFIC] == [other[name] for name in TRAFFIC]
    assert {row["shared"] for row in site_traffic_rows(going)} == {None}


def test_sites_that_were_away_late_or_refused_are_seen(partial: Path) -> None:
    run = load_run(partial)
    seen = attendance(run)
    assert [n for n, kind in seen["airline"].items() if kind is Attendance.AWAY] == [3, 4]
    assert [n for n, kind in seen["languages"].items() if kind is Attendance.LATE] == [7, 8, 9]
    assert [n for n, kind in seen["government"].items() if kind is Attendance.REFUSED] == [12]
    assert set(seen["gazetteer"].values()) == {Attendance.TOOK_PART}
    rows = {row["site"]: row for row in site_traffic_rows(run)}
    assert (rows["languages"]["TOOK_PART"], rows["languages"]["LATE"]) == (52, 3)
    assert [rows["all sites"][kind.name] for kind in Attendance] == [4 * 55 - 6, 2, 3, 1]
    figure = attendance_figure(run)
    assert figure is not None
    assert figure.data[0]["z"][SITES.index("languages")][6] == Attendance.LATE
    assert figure.data[0]["customdata"][SITES.index("government")][11] == (
        "government, round 12: refused: round 12 had closed"
    )


def test_an_answer_that_was_late_and_refused_is_refused(tmp_path: Path) -> None:
    both = Away(late={"airline": [2]}, refused={"airline": [2]})
    run = load_run(write_run(tmp_path / "run", "fede", away=both))
    assert attendance(run)["airline"][2] is Attendance.REFUSED


def test_rounds_that_came_to_nothing_are_said(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "fede")
    assert notices(experiments([load_run(folder)])) == ""
    lines = (folder / "run.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    events[1:4] = [event | {"void": True} for event in events[1:4]]
    (folder / "run.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    said = notices(experiments([load_run(folder)]))
    assert "fede: 3 of 55 rounds came to nothing, because fewer sites answered than the quorum" in said
    events[2]["refused"] = {"airline": "a number of 1e+12"}
    (folder / "run.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    said = notices(experiments([load_run(folder)]))
    assert (
        "because answers were refused and fewer were left than the quorum asks for: a number of 1e+12."
        in said
    )


def test_rounds_without_refused_uploads_are_said(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", "fede", away=Away(refused={"airline": [2, 3]})))
    said = notices(experiments([run]))
    assert "fede: 2 of 55 rounds went on without uploads that the hub refused, of airline: " in said


def test_the_sites_rows_add_up(partial: Path) -> None:
    *sites, whole = site_traffic_rows(load_run(partial))
    for name in (*TRAFFIC, "bytes", "shared"):
        assert sum(row[name] for row in sites) == whole[name]


def test_one_run_is_drawn_over_bytes_by_direction(partial: Path) -> None:
    run = load_run(partial)
    validation, loss = own_bytes_figures(run)
    ends = {trace["name"]: trace["x"][-1] for trace in validation.data}
    assert ends == {
        "in both directions": run.traffic.bytes,
        "up, to the hub": run.traffic.up_bytes,
        "down, to sites": run.traffic.down_bytes,
    }
    assert loss.data[0]["y"][-1] < loss.data[0]["y"][0]


def test_who_sends_nothing_is_a_level_at_its_best(tmp_path: Path) -> None:
    single, fede = write_run(tmp_path / "single"), write_run(tmp_path / "fede", "fede", level=0.35)
    groups = experiments(load_runs([single, fede]))
    level, line = bytes_figures(groups)[0].data
    best = max(found.mrr for found in groups[0].first.validations.values())
    assert level["y"] == pytest.approx([best, best])
    assert level["x"] == [0, line["x"][-1]] == [0, groups[1].first.traffic.bytes]
    assert bytes_figures(groups[:1]) == []


def test_bytes_are_means_over_seeds(tmp_path: Path) -> None:
    for seed, last in ((0, 20), (1, 40)):
        write_run(tmp_path / f"seed-{seed}", "fede", seed=seed, last=last)
    runs = load_runs([tmp_path])
    row = traffic_rows(experiments(runs))[0]
    assert row["bytes"] == sum(run.traffic.bytes for run in runs) / 2
    assert row["rounds"] == 30
    assert row["per_value"] == pytest.approx(4, abs=0.1)


def test_the_page_says_who_shares_what_and_what_became_of_links(partial: Path) -> None:
    parts = sections([load_run(partial)], Canvas())
    assert "All sites took part in every round" not in parts["Traffic"]
    hold = parts["What the sites hold"]
    assert "fedep: rows that may travel" in hold
    assert "<td>300</td><td>14.3%</td>" in hold
    assert "<td>120</td><td>117</td><td>3</td>" in hold
    assert "Georgia ~ Georgia" in hold


def test_full_attendance_is_said_in_words(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", "fede"))
    assert attendance_figure(run) is None
    assert "All sites took part in every round" in sections([run], Canvas())["Traffic"]


@pytest.mark.parametrize(("method", "words"), [("single", "trains alone"), ("collective", "not counted")])
def test_without_exchange_there_is_no_plot_of_it(tmp_path: Path, method: str, words: str) -> None:
    canvas = Canvas()
    parts = sections([load_run(write_run(tmp_path / "run", method))], canvas)
    assert words in parts["Traffic"]
    assert not any("ytes" in figure.title for figure in canvas.figures.values())
    assert "may travel" not in parts["What the sites hold"]


def test_many_sites_and_seeds_have_a_page(tmp_path: Path) -> None:
    many = [f"site {i}" for i in range(70)]
    write_seeds(tmp_path / "fede", "fede", (0, 1), sites=many, last=6)
    run = write_run(tmp_path / "one", "fedep", sites=many, last=6, away=Away(late={"site 3": [2]}))
    assert "Traffic" in sections(load_runs([tmp_path]), Canvas())
    alone = sections([load_run(run)], Canvas())["Traffic"]
    assert alone.count('<th scope="row">site') == 70
