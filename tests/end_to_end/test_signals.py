"""SIGINT and SIGTERM: the round ends, everything is saved, and the same command goes on with --resume."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from subprocess import Popen

import pytest

from commands import answer, journal_of, made, started, summary_of
from fedkge.nodes.store import Store

pytest.importorskip("numba")
pytestmark = pytest.mark.usefixtures("here")

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
NOTE = "note: the round is ended and saved before this run is left; once more leaves at once\n"


def wait_for(run: Path, rounds: int, process: Popen[str]) -> None:
    """Until the run has closed some rounds."""
    while not (run / "run.jsonl").exists() or (run / "run.jsonl").read_text().count('"traffic"') <= rounds:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)


def checkpoints(run: Path) -> dict[str, list[int]]:
    homes = (run / "hub", *(run / "sites").iterdir())
    return {home.name: Store(home).rounds() for home in homes}


@pytest.mark.parametrize("number", STATUS)
@pytest.mark.parametrize("method", ["single", "fedlu"])
def test_a_signal_saves_the_run_and_it_ends_as_if_nothing_had_happened(
    tmp_path: Path, method: str, number: signal.Signals
) -> None:
    line = ("run", "tiny.toml", "--set", f"method.name={method}", "--set", "codec.name=int8")
    line += ("--set", "rounds=300", "--set", "evaluate.every=20")
    whole, run = tmp_path / "whole", tmp_path / "run"
    answer(*line, "--out", whole)
    process = started(*line, "--out", run)
    wait_for(run, 25, process)
    process.send_signal(number)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (STATUS[number], "")
    assert NOTE in said
    assert said.endswith(f"interrupted: {run}: the same command with --resume goes on\n")
    assert not (run / "summary.json").exists()
    (rounds,) = {tuple(of) for of in checkpoints(run).values()}
    (saved,) = rounds
    assert 25 <= saved < 300
    closed = [event["round"] for event in journal_of(run) if event["event"] == "round"]
    assert closed == list(range(1, saved + 1)), "nothing that was done is lost"
    answer(*line, "--out", run, "--resume")
    assert made(run) == made(whole)
    for same in ("metrics", "sites", "courses", "traffic"):
        assert summary_of(run)[same] == summary_of(whole)[same]
    (resumed,) = [event["round"] for event in journal_of(run) if event["event"] == "resumed"]
    assert resumed == saved


@pytest.mark.slow
def test_processes_end_in_order(tmp_path: Path) -> None:
    line = ("run", "tiny.toml", "--set", "method.name=fedep", "--set", "rounds=60")
    whole, run = tmp_path / "whole", tmp_path / "run"
    answer(*line, "--out", whole)
    apart = (*line, "--set", "runtime.name=processes", "--out", run)
    process = started(*apart)
    wait_for(run, 5, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 143
    assert NOTE in said
    answer(*apart, "--resume")
    assert summary_of(run)["metrics"] == summary_of(whole)["metrics"]


def test_a_sweep_ends_with_the_run_that_is_under_way(tmp_path: Path) -> None:
    line = ("sweep", "tiny.toml", "--grid", "method.name=fedep,fede", "--set", "rounds=5000")
    process = started(*line, "--out", tmp_path / "grid")
    wait_for(tmp_path / "grid" / "method.name=fedep", 3, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert f"interrupted: {tmp_path / 'grid' / 'method.name=fedep'}: the same" in said
    assert not (tmp_path / "grid" / "method.name=fede").exists()


def test_a_signal_before_the_first_round(tmp_path: Path) -> None:
    """While data is read and kernels are compiled there is nothing to save."""
    process = started("run", "tiny.toml", "--out", tmp_path / "run", "--set", "rounds=100000")
    while not (tmp_path / "run" / "run.jsonl").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.endswith(f"interrupted: {tmp_path / 'run'}: the same command with --resume goes on\n")
