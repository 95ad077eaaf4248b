"""`fedkge run` as a user runs it: exit codes, what is printed, what lies in the run folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from commands import (
    ENVIRONMENT,
    LINE,
    answer,
    fedkge,
    files,
    journal_of,
    made,
    notes,
    printed,
    refused,
    summary_of,
)
from fedkge.config import read_toml

pytest.importorskip("numba")
pytestmark = pytest.mark.usefixtures("here")

# run

RISING = "warning: Best at the last validation of the last round: single; more rounds may do better.\n"


def test_run(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert "north" in done.stdout
    assert "report: runs/tiny/report.html" in done.stdout
    summary = json.loads(Path("runs/tiny/summary.json").read_text())
    assert summary["rounds"] == 6
    assert summary["best_round"] in (2, 4, 6)
    assert summary["sites"]["north"]["triples"]["test"] == 20
    splits = {f"{split}{side}" for split in ("valid", "test") for side in ("", "_head", "_tail")}
    assert set(summary["metrics"]) == set(summary["sites"]["north"]["metrics"]) == splits
    events = journal_of("runs/tiny")
    kinds = [event["event"] for event in events if event["event"] != "traffic"]
    assert kinds == ["start", "leaks", "aligned", *["round", "round", "evaluate"] * 3, "done", "end"]
    assert [event["round"] for event in events if event["event"] == "traffic"] == list(range(7))
    assert "sent:" not in done.stdout  # by sites that train alone
    there = files(Path("runs/tiny"))
    for site in ("north", "south"):
        tables = [f"{of}.{end}" for of in ("entities", "relations") for end in ("safetensors", "tsv")]
        for name in (*tables, "ranks.safetensors", "metrics.json", "journal.jsonl", "config.toml"):
            assert f"sites/{site}/{name}" in there
    assert not any(name.endswith(".part") for name in there)
    config = read_toml(Path("runs/tiny/config.toml"))
    assert config["trainer"]["optimizer"] == "adam"


def test_output_that_is_no_terminal_has_no_progress_bar(done: subprocess.CompletedProcess[str]) -> None:
    aligned, *rounds, rising = done.stderr.splitlines(keepends=True)
    assert aligned.startswith("alignment: 20 of 20 entities")
    assert rising == notes(done.stderr) == RISING
    assert [line.split("  ")[0] for line in rounds] == [f"tiny: round {n}/6" for n in range(1, 7)]
    for text in (done.stdout, done.stderr):
        assert "\r" not in text
        assert "\x1b" not in text


@pytest.mark.usefixtures("done")
def test_a_run_repeats_bit_by_bit_in_another_process(tmp_path: Path) -> None:
    (summary,) = answer("run", "tiny.toml", "--out", tmp_path / "again")
    assert made("runs/tiny") == made(tmp_path / "again")
    assert summary["metrics"] == json.loads(Path("runs/tiny/summary.json").read_text())["metrics"]


@pytest.mark.usefixtures("done")
def test_a_run_is_not_overwritten() -> None:
    before = files(Path("runs/tiny"))
    assert "holds a run already; choose another folder or give --resume" in refused("run", "tiny.toml")
    said = refused("run", "tiny.toml", "--resume", "--set", "trainer.lr=0.5")
    assert "another experiment; a run is resumed with the same options" in said
    assert files(Path("runs/tiny")) == before


def test_set_overrides(tmp_path: Path) -> None:
    (summary,) = answer(
        *("run", "tiny.toml", "--out", tmp_path / "run", "--set", "model.name=rotate", "--set", "rounds=1"),
        *("--set", 'trainer.loss="logistic"', "--set", "seed=5"),
    )
    assert (summary["model"], summary["rounds"], summary["seed"]) == ("rotate", 1, 5)
    assert read_toml(tmp_path / "run" / "config.toml")["trainer"]["loss"] == "logistic"


def test_patience_stops_a_run_and_keeps_the_best(tmp_path: Path) -> None:
    (summary,) = answer(
        *("run", "tiny.toml", "--out", tmp_path / "run", "--set", "rounds=200", "--set", "evaluate.every=1"),
        *("--set", "evaluate.patience=2", "--set", "trainer.lr=0.2"),
    )
    for course, found in summary["courses"].items():
        assert found["rounds"] == found["best_round"] + 2 < 200, course
    found = [e["sites"] for e in journal_of(tmp_path / "run") if e["event"] == "evaluate"]
    mrr = max(sites["north"]["mrr"] for sites in found if "north" in sites)
    assert summary["sites"]["north"]["metrics"]["valid"]["mrr"] == mrr


def test_killed_and_resumed_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    many = ["--set", "rounds=120", "--set", "evaluate.every=20", "--set", "method.name=fedep"]
    whole, run = tmp_path / "whole", tmp_path / "killed"
    answer("run", "tiny.toml", "--out", whole, *many)
    line = [*LINE, "run", "tiny.toml", "--out", str(run), *many]
    victim = subprocess.Popen(
        line, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (run / "run.jsonl").exists() or len((run / "run.jsonl").read_bytes().splitlines()) < 20:
        assert victim.poll() is None, victim.communicate()
        time.sleep(0.001)
    victim.kill()
    victim.communicate()
    assert not (run / "summary.json").exists()
    said = fedkge("report", run)
    assert said.exit_code == 0, said.output
    assert "–" in said.stdout  # what is not known yet
    answer("run", "tiny.toml", "--out", run, *many, "--resume")
    assert made(run) == made(whole)
    for same in ("metrics", "sites", "courses", "traffic"):
        assert summary_of(whole)[same] == summary_of(run)[same]


def test_a_finished_run_resumed_stays_as_it_is(tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run", "--set", "rounds=2")
    (first,) = answer("run", "tiny.toml", *out)
    before = {name: file for name, file in files(tmp_path / "run").items() if name != "report.html"}
    (second,) = answer("run", "tiny.toml", *out, "--resume")
    after = {name: file for name, file in files(tmp_path / "run").items() if name != "report.html"}
    assert after == before
    assert first == second


def test_resuming_over_other_data(tmp_path: Path) -> None:
    shutil.copytree("federation", tmp_path / "data")
    line = ("run", "tiny.toml", "--out", tmp_path / "run", "--set", f"data.path={tmp_path / 'data'}")
    answer(*line, "--set", "rounds=2")
    with (tmp_path / "data" / "north" / "train.tsv").open("a") as file:
        file.write("somebody\ta\te1\n")
    message = (
        f"{tmp_path / 'run'}: site 'north' has other triples or marks than the run was trained on; "
        "expected the same files: restore them, or run anew"
    )
    assert refused(*line, "--set", "rounds=2", "--resume") == message
    assert refused("evaluate", tmp_path / "run") == message


def test_nothing_to_resume(tmp_path: Path) -> None:
    found = fedkge("run", "tiny.toml", "--out", tmp_path / "run", "--set", "rounds=1", "--resume")
    assert found.exit_code == 0, found.output
    assert notes(found.stderr) == f"note: {tmp_path / 'run'}: nothing to resume, a new run\n{RISING}"


# Sites together, and seeds


def test_methods_that_exchange_say_what_they_sent(tmp_path: Path) -> None:
    found = fedkge("run", "tiny.toml", "--out", tmp_path / "run", "--set", "method.name=fede")
    assert found.exit_code == 0, found.output
    traffic = summary_of(tmp_path / "run")["traffic"]
    up, down = (f"{traffic[way] / 1000:.1f} kB" for way in ("up_bytes", "down_bytes"))
    assert f"sent: {up} up, {down} down in 6 rounds\n" in found.stdout


def test_site_by_site_is_the_same(tmp_path: Path) -> None:
    line = ("run", "tiny.toml", "--set", "method.name=fedprox")
    answer(*line, "--out", tmp_path / "stacked")
    answer(*line, "--out", tmp_path / "apart", "--no-stack")
    assert made(tmp_path / "stacked") == made(tmp_path / "apart")


def test_seeds(tmp_path: Path) -> None:
    line = ("run", "tiny.toml", "--set", "rounds=2", "--set", "method.name=fedep")
    found = answer(*line, "--seeds", "0, 3,1", "--out", tmp_path / "runs")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "report.html", "seed-0", "seed-1", "seed-3"
    ]  # fmt: skip
    assert [run["seed"] for run in found["runs"]] == [0, 3, 1]
    assert found["report"] == str(tmp_path / "runs" / "report.html")
    assert [row["site"] for row in found["sites"]] == ["north", "south", "all"]
    for row in found["sites"]:
        own = [run if row["site"] == "all" else run["sites"][row["site"]] for run in found["runs"]]
        for metric in ("mrr", "hits@10"):
            values = [run["metrics"]["test"][metric] for run in own]
            assert row[metric] == pytest.approx(np.mean(values))
            assert row[f"{metric}_std"] == pytest.approx(np.std(values, ddof=1))
    (alone,) = answer(*line, "--set", "seed=3", "--out", tmp_path / "alone")
    assert alone["metrics"] == found["runs"][1]["metrics"]
    shown = fedkge(*line, "--seeds", "0,3,1", "--out", tmp_path / "runs", "--resume")
    assert shown.exit_code == 0, shown.output
    all_ = found["sites"][-1]
    assert f"{all_['mrr']:.4f} ± {all_['mrr_std']:.4f}" in shown.stdout
    assert "over 3 seeds" in " ".join(shown.stdout.split())
    assert "rounds by each seed, on average" in shown.stdout


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ("a", "--seeds: expected whole numbers, as in 0,1,2, got 'a'"),
        ("0,1,0", "--seeds: 0 stands twice"),
        ("1,01", "--seeds: 1 stands twice"),
        ("", "--seeds: expected a list, as in 0,1,2, got ''"),
        ("0,,1", "--seeds: expected a list, as in 0,1,2, got '0,,1'"),
        ("1.5", "--seeds: expected whole numbers, as in 0,1,2, got '1.5'"),
    ],
)
def test_bad_seeds(seeds: str, message: str, tmp_path: Path) -> None:
    assert refused("run", "tiny.toml", "--seeds", seeds, "--out", tmp_path / "runs") == message
    assert not (tmp_path / "runs").exists()


def test_one_run_and_several_do_not_share_a_folder(tmp_path: Path) -> None:
    line = ("run", "tiny.toml", "--set", "rounds=1", "--out")
    answer(*line, tmp_path / "one")
    answer(*line, tmp_path / "several", "--seeds", "0")
    said = refused(*line, tmp_path / "one", "--seeds", "0")
    assert said == f"{tmp_path / 'one'}: holds a run already; choose another folder for several runs"
    said = refused(*line, tmp_path / "several")
    assert said == f"{tmp_path / 'several'}: holds several runs, such as seed-0; choose another folder"


def test_the_bar_on_a_terminal(tmp_path: Path) -> None:
    """Standard error is a terminal here, standard output is not."""
    master, terminal = os.openpty()
    line = [*LINE, "run", "tiny.toml", "--out", str(tmp_path / "run"), "--set", "method.name=fede", "--json"]
    environment = {**ENVIRONMENT, "COLUMNS": "160", "TERM": "xterm"}
    run = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
        while part := os.read(master, 65536):
            shown += part
    os.close(master)
    out, _ = run.communicate()
    assert run.returncode == 0, shown
    assert printed(out)[0]["rounds"] == 6
    bar = shown.decode()
    for word in ("run", "round", "6/6", "loss 0.", "valid MRR 0.", "triples/s", "kB sent", "left at most"):
        assert word in bar, word


# What is imported when.


@pytest.mark.parametrize("triple", ["import fedkge", "from fedkge.cli.main import main; main()"])
def test_nothing_heavy_is_imported_for_help(triple: str) -> None:
    code = (
        f"import sys; sys.argv = ['fedkge', '--help']\ntry:\n    {triple}\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'numba', 'pyarrow', 'plotly', 'sklearn', 'pykeen', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stderr == "[]\n"
    assert ("embeddings" in found.stdout) == ("main" in triple)


def test_plain_torch_instead_of_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from safetensors.torch import load_file

    line = ("run", "tiny.toml", "--set", "rounds=2")
    answer(*line, "--out", tmp_path / "fast")
    monkeypatch.setitem(os.environ, "FEDKGE_KERNELS", "reference")
    answer(*line, "--out", tmp_path / "slow")
    fast, slow = (
        load_file(tmp_path / name / "sites" / "south" / "entities.safetensors")["rows"]
        for name in ("fast", "slow")
    )
    torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-3)
