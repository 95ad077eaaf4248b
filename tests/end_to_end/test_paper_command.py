"""`fedkge paper`: what is missing is run, in lanes or one by one, stopped, gone on with, and written down."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from commands import answer, fedkge, refused, started, without_packages
from fedkge.papers.catalogue import jobs, read_tables
from fedkge.papers.protocols import read_protocols
from fedkge.papers.records import read_lines, read_records, write_records
from fedkge.papers.running import How, Outcome, run_all
from small_paper import CATALOGUE, PRESET

pytest.importorskip("numba")
pytestmark = pytest.mark.usefixtures("here")


def test_a_table_is_run_once_and_written(project: Path) -> None:
    first = fedkge("paper", "p-table1", "--rows", "*/fedep,*/fedprox")
    assert first.exit_code == 0, first.output
    assert "note: 0 of 2 runs are recorded" in first.stderr
    page = (project / "docs" / "results" / "p-table1.md").read_text()
    assert page.strip() in first.stdout
    assert "| federation | transe | fedep | FedE, Table 1 | 1 | 90.00 |" in page
    assert "mu=0.01 (paper: 0.1)" in page
    assert "| federation | transe | single | – | – | – | – | – |" in page
    known = read_records(project)
    assert {key.split("/")[3] for key in known} == {"fedep", "fedprox"}
    again = fedkge("paper", "p-table1", "--rows", "*/fedep,*/fedprox")
    assert "round " not in again.stderr
    assert again.stdout == first.stdout
    answer("paper", "p-table1")
    assert len(read_records(project)) == 4
    listed = answer("paper", "list")
    assert [(row["name"], row["seed 0"]) for row in listed] == [("p-table1", "4 of 4"), ("p-table9", "–")]


def test_time_ends_a_run_that_goes_on_later(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fedkge("paper", "p-table1", "--rows", "*/fedep", "--out", "whole", "--records", "whole.jsonl")
    assert whole.exit_code == 0, whole.output
    line = ("paper", "p-table1", "--rows", "*/fedep", "--records", "new.jsonl")
    stopped = fedkge(*line, "--seconds", 0)
    assert stopped.exit_code == 0, stopped.output
    assert "1 runs are left" in stopped.stderr
    clock = iter([False, False, False])  # before the run, and after two rounds
    with monkeypatch.context() as patch:
        patch.setattr("fedkge.papers.running.How.over", property(lambda how: next(clock, True)))
        stopped = fedkge(*line)
    assert "fedep: interrupted; the same command goes on with it" in stopped.stderr
    assert "round 3/30" in stopped.stderr
    assert "round 4/30" not in stopped.stderr
    assert not (project / "new.jsonl").exists()
    ended = fedkge(*line)
    assert "round 3/30" not in ended.stderr
    assert "round 4/30" in ended.stderr
    (one,), (other,) = (read_lines(project / name).values() for name in ("whole.jsonl", "new.jsonl"))
    for part in ("metrics", "valid", "curve", "ranks", "bytes", "triples", "courses", "config"):
        assert one[part] == other[part], part
    assert not (project / "docs").exists()  # records went elsewhere


def test_runs_that_are_recorded_without_a_curve_are_run_again_if_asked(project: Path) -> None:
    line = ("paper", "p-table1", "--rows", "*/fedep")
    assert fedkge(*line).exit_code == 0
    ((key, record),) = read_records(project).items()
    write_records(project, [{name: value for name, value in record.items() if name != "curve"}])
    for more, count in ((), 0), (("--curves",), 1):
        assert len(answer(*line, *more, "--dry-run")) == count
    shutil.rmtree(project / "runs")
    assert fedkge(*line, "--curves").exit_code == 0
    assert read_records(project)[key]["curve"] == record["curve"]
    assert answer(*line, "--curves", "--dry-run") == []


def test_missing_runs_may_share_negatives(project: Path) -> None:
    line = ("paper", "p-table1", "--rows", "*/fedep,*/single")
    assert fedkge(*line, "--rows", "*/fedep").exit_code == 0
    first = fedkge(*line, "--set", "trainer.chunk=128")
    assert first.exit_code == 0, first.output
    assert "note: 1 of 2 runs are recorded" in first.stderr
    found = {key: one["config"]["trainer"]["chunk"] for key, one in read_records(project).items()}
    assert found == {
        "p-2020/federation/transe/fedep/0": 1,
        "p-2020/federation/transe/single/0/shared": 128,
    }
    page = (project / "docs" / "results" / "p-table1.md").read_text()
    assert "| federation | transe | single | negatives shared by 128 (paper: own) |" in page
    assert "| federation | transe | fedep | – |" in page
    listed = answer("paper", "list")
    assert (listed[0]["name"], listed[0]["seed 0"]) == ("p-table1", "2 of 4")
    for more in (), ("--set", "trainer.chunk=128"):
        assert answer(*line, *more, "--dry-run") == [], "the row is filled"
    asked = answer(*line, "--set", "trainer.chunk=1", "--dry-run")
    assert [one["row"] for one in asked] == ["p-2020-small-transe/single"], "own ones are asked for"
    assert fedkge(*line, "--set", "trainer.chunk=1").exit_code == 0
    assert "shared by" not in (project / "docs" / "results" / "p-table1.md").read_text()
    places = {path.parent.relative_to(project) for path in (project / "runs").rglob("summary.json")}
    of_single = {path.name for path in places if path.parent.name == "single"}
    assert of_single == {"seed-0", "seed-0-chunk-128"}


def test_lanes_give_the_same_and_records_are_taken_in(project: Path) -> None:
    rows = ("--rows", "*/fedep,*/single")
    assert fedkge("paper", "p-table1", *rows, "--lanes", 2, "--records", "lanes.jsonl").exit_code == 0
    assert fedkge("paper", "p-table1", *rows, "--out", "alone").exit_code == 0
    lanes, alone = read_lines(project / "lanes.jsonl"), read_records(project)
    assert lanes.keys() == alone.keys()
    assert {key: one["ranks"] for key, one in lanes.items()} == {
        key: one["ranks"] for key, one in alone.items()
    }
    answer_ = fedkge("paper", "p-table1", "--rows", "*/fedep", "--seeds", "1", "--records", "seed.jsonl")
    assert answer_.exit_code == 0, answer_.output
    taken = fedkge("paper", "add", "seed.jsonl")
    assert taken.exit_code == 0, taken.output
    assert len(read_records(project)) == 3
    assert (
        "| federation | transe | fedep | FedE, Table 1 | 2 |"
        in (project / "docs/results/p-table1.md").read_text()
    )


def test_a_machine_without_the_packages_of_the_command_line_runs_what_is_missing(project: Path) -> None:
    around = without_packages(project / "absent")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "fedkge.papers", "p-table1", "--records", "new.jsonl", *arguments]
        return subprocess.run(line, cwd=project, env=around, capture_output=True, text=True, check=False)

    rows = ("--rows", "*/fedep", "*/single", "--lanes", "2", "--set", "trainer.chunk=3")
    planned = run(*rows, "--dry-run")
    assert planned.stdout.splitlines() == [
        "p-2020-small-transe/fedep, seed 0",
        "p-2020-small-transe/single, seed 0",
    ]
    stopped = run(*rows, "--seconds", "0")
    assert stopped.returncode == 0, stopped.stderr
    assert "note: 2 runs are left; the same command goes on" in stopped.stderr
    done = run(*rows)
    assert done.returncode == 0, done.stderr
    assert "note: 2 of 2 runs are recorded" in run(*rows).stderr
    assert read_records(project) == {}
    assert fedkge("paper", "add", "new.jsonl").exit_code == 0
    page = (project / "docs/results/p-table1.md").read_text()
    assert page.count("negatives shared by 3 (paper: own)") == 2
    for wrong in (("--set", "trainer.lr=1"), ("--rows", "nobody"), ("--lanes", "0"), ("--device", "gpu")):
        failed = run(*wrong)
        assert failed.returncode == 2
        assert "error: " in failed.stderr.splitlines()[-1]
        assert "Traceback" not in failed.stderr


def wait_for(found: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not found():
        assert time.monotonic() < until, "nothing came of it"
        time.sleep(0.01)


def lanes_of(process: int) -> list[int]:
    """The processes that this one has started and that train: those that lead a session of their own."""
    tasks = Path(f"/proc/{process}/task")
    every = [int(one) for task in tasks.iterdir() for one in (task / "children").read_text().split()]
    return [one for one in every if os.getsid(one) == one]


def longer(project: Path, rounds: int, epochs: int) -> None:
    (preset,) = (project / "examples").iterdir()
    text = preset.read_text().replace("rounds = 30", f"rounds = {rounds}")
    preset.write_text(text.replace("epochs = 1", f"epochs = {epochs}"))


def begun(project: Path) -> set[str]:
    """Rows of which a round was begun, so that a signal lets it end."""
    journals = (project / "runs").rglob("run.jsonl")
    return {path.parents[1].name for path in journals if '"traffic"' in path.read_text()}


def test_a_signal_ends_all_lanes_and_nothing_else_is_begun(project: Path) -> None:
    longer(project, rounds=1, epochs=1000)  # whenever the signal comes, the round under way is the last
    process = started("paper", "p-table1", "--lanes", 2, "--records", "new.jsonl")
    wait_for(lambda: len(begun(project)) == 2)
    under_way = begun(project)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert begun(project) == under_way
    assert "the same command goes on" in said


def test_a_second_signal_is_not_waited_for(project: Path) -> None:
    longer(project, rounds=1, epochs=10**6)
    process = started("paper", "p-table1", "--lanes", 2, "--records", "new.jsonl")
    wait_for(lambda: len(begun(project)) == 2)
    for _ in range(2):
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "note: 4 runs are left" in said


def test_a_lane_that_is_killed_is_told_and_others_go_on(project: Path) -> None:
    longer(project, rounds=200, epochs=1)
    process = started("paper", "p-table1", "--lanes", 2, "--records", "new.jsonl")
    wait_for(lambda: len(begun(project)) == 2)
    os.kill(lanes_of(process.pid)[0], signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert said.count("its lane ended with signal 9; the same command goes on with it") == 1
    assert "note: 1 runs are left" in said
    assert len(read_lines(project / "new.jsonl")) == 3
    assert fedkge("paper", "p-table1", "--records", "new.jsonl").exit_code == 0
    assert len(read_lines(project / "new.jsonl")) == 4


def test_a_lane_that_is_killed_while_it_speaks_is_not_waited_for(project: Path) -> None:
    """Its outcome does not fit into a pipe, so that it waits in the middle of it until somebody reads."""
    table = read_tables(project)["p-table1"]
    every = jobs(table, read_protocols(project)["p-2020"], [0])
    every = [replace(job, assignments=(f"rounds=30{' ' * 500_000}",)) for job in every[:2]]
    outcomes = run_all(every, How(project / "runs", "cpu"), 2, lambda name: pytest.fail(name))
    reader = ThreadPoolExecutor(1)
    first: Outcome = reader.submit(next, outcomes).result(timeout=60)
    wait_for(lambda: len(list((project / "runs").rglob("summary.json"))) == 2)
    time.sleep(0.5)
    for lane in lanes_of(os.getpid()):
        os.kill(lane, signal.SIGKILL)
    (last,) = reader.submit(list[Outcome], outcomes).result(timeout=30)
    reader.shutdown(wait=False)
    assert first.record is not None
    assert last.failure == "its lane ended with signal 9; the same command goes on with it"


def test_what_goes_wrong_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "examples" / "p-2020-other-transe.toml").write_text(
        PRESET.replace('path = "%s"', 'name = "fb15k-237-C3"')
    )
    assert refused("paper", "p-table9") == "p-table9: its data needs credentials"
    assert refused("paper", "p-table1", "--rows", "zz").startswith(
        "--rows: nothing matches zz (there are: p-2020-"
    )
    told = refused("paper", "p-table1", "--set", "method.mu=0.1")
    assert told.startswith("--set method.mu=0.1: expected trainer.chunk, as in trainer.chunk=128; any other")
    told = refused("paper", "p-table1", "--set", f"trainer.chunk={10**18}")
    assert told.startswith("--set trainer.chunk: expected at most 2,147,483,647, got 1,000,")
    assert "expected whole numbers" in refused("paper", "p-table1", "--seeds", "a")
    monkeypatch.delenv("FEDKGE_DATA", raising=False)
    found = fedkge("paper", "p-table1", "--rows", "other*/fedep")
    assert found.exit_code == 2
    assert "fb15k-237-C3" in found.stderr
    assert "FEDKGE_DATA" in found.stderr
    assert not (project / "runs").exists()


def test_a_run_that_fails_does_not_stop_the_others(project: Path) -> None:
    (project / "papers" / "catalogue.toml").write_text(
        CATALOGUE.replace('"trainer.lr" = [0.01]', '"trainer.lr" = [1e30], "trainer.optimizer" = ["sgd"]')
    )
    found = fedkge("paper", "p-table1", "--rows", "lr=,*/fedep")
    assert found.exit_code == 2, found.output
    assert len(read_records(project)) == 1
