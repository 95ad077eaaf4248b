"""benchmarks/choices.py trains a grid without packages that a GPU machine lacks, and keeps no test figure."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from commands import without_packages

pytest.importorskip("numba")

ROOT = Path(__file__).parents[2]
PRESET = """
rounds = 30
data     = { name = "atlas" }
model    = { name = "transe", dim = 6, margin = 4.0 }
trainer  = { epochs = 1, batch_size = 512, negatives = 4, lr = 1e-2 }
evaluate = { every = 1, patience = 2 }
[variants.fedprox]
method = { name = "fedprox", mu = 0.001, restart = false }
"""
SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {benchmarks!r})
import choices
choices.ROOT = Path({root!r})
choices.CHOICES = (choices.Choice("tiny", "fedprox", "mu", (0.1, 0.001), 3),)
if __name__ == "__main__":
    choices.main()
"""


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for name, value in os.environ.items():
        monkeypatch.setenv(name, value)  # what the script prepares ends with the test
    return importlib.import_module("choices")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A preset of its own, and a script that tries two values of an option of it."""
    for folder in ("examples", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "examples" / "tiny.toml").write_text(PRESET)
    text = SCRIPT.format(benchmarks=str(ROOT / "benchmarks"), root=str(tmp_path))
    (tmp_path / "script.py").write_text(text)
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "script.py", *arguments],
        cwd=project,
        env=without_packages(project / "absent"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def keys_of(value: Any) -> set[str]:
    """Every key of nested tables."""
    if not isinstance(value, dict):
        return set()
    return set(value).union(*map(keys_of, value.values()))


def test_a_grid_is_run_recorded_gone_on_with_and_written(project: Path) -> None:
    line = ("--out", "lines.jsonl", "--device", "cpu", "--lanes", "2")
    stopped = run(project, *line, "--seconds", "0")
    assert stopped.returncode == 0, stopped.stderr
    assert "note: 2 runs are left" in stopped.stderr
    assert "no runs" in run(project, "--out", "lines.jsonl", "--docs", "docs").stderr
    assert not (project / "docs" / "choices.md").exists()
    done = run(project, *line)
    assert done.returncode == 0, done.stderr
    text = (project / "lines.jsonl").read_text()
    found = {one["run"]: one for one in map(json.loads, text.splitlines())}
    assert found.keys() == {"tiny/fedprox/mu=0.1", "tiny/fedprox/mu=0.001"}
    for one in found.values():
        config = one["config"]
        assert (config["rounds"], config["trainer"]["chunk"], config["method"]["restart"]) == (3, 128, True)
        assert one["run"].endswith(f"mu={config['method']['mu']}")
        assert 1 <= one["best_round"] <= one["rounds"] <= 3
        assert 0 < one["valid_mrr"] < 1
        assert not any("test" in key or "hits" in key for key in keys_of(one))
        assert one["seconds"] > 0
    shown = f"{done.stdout}{done.stderr}".lower()
    assert "test" not in shown.replace(str(project).lower(), "")
    # A line that is lost, or of other options, is made again: here from the run's folder.
    lines = text.splitlines(keepends=True)
    (project / "lines.jsonl").write_text(lines[0] + lines[1].replace('"rounds": 3, "', '"rounds": 4, "'))
    again = run(project, *line, "--lanes", "1")
    assert "note: 1 of 2 runs are recorded" in again.stderr
    assert "round 1/3" not in again.stderr, "its folder has ended"
    assert run(project, *line).stderr.startswith("note: 2 of 2 runs are recorded\nnote: 0 runs are left")
    assert run(project, "--out", "lines.jsonl", "--docs", "docs").returncode == 0
    page = (project / "docs" / "choices.md").read_text()
    best = max(found.values(), key=lambda one: one["valid_mrr"])
    assert f"| **{best['config']['method']['mu']}** | **{100 * best['valid_mrr']:.2f}** |" in page
    assert "The preset has `mu = 0.001`. It has `restart = false`, unlike these runs." in page
    assert "no run has this in its key" in run(project, "--list", "--only", "fedec").stderr


def test_choices_are_the_presets_but_for_what_is_said(choices: Any) -> None:
    for choice in choices.CHOICES:
        plain = choice.plain.experiment()
        for value in choice.values:
            own = choice.job(value).experiment()
            assert (own.seed, own.trainer.chunk, own.rounds) == (0, 128, choice.cap)
            for part in ("model", "data", "evaluate", "codec", "select", "aggregate"):
                assert getattr(own, part) == getattr(plain, part), part
            usual = {field.name: field.default for field in fields(own.method)}
            assert own.method.restart == (plain.method.restart if choice.own_restart else usual["restart"])
            assert own.method.mu == value
            assert type(own.method) is type(plain.method)
        assert plain.method.mu in choice.values[1:-1], "an end of a grid says nothing of what is beyond"
    every = [job for choice in choices.CHOICES for job in map(choice.job, choice.values)]
    assert len(choices.jobs()) == len({job.place for job in every}) == len(every)


def test_words_of_the_page(choices: Any) -> None:
    choice = choices.CHOICES[0]

    def told(mrr: dict[float, float], rounds: int = 45) -> str:
        lines = {
            choice.job(value).key: {
                "valid_mrr": of,
                "rounds": rounds,
                "best_round": 30,
                "seconds": 12.3,
                "device": "NVIDIA H200",
                "date": "2026-11-18",
            }
            for value, of in mrr.items()
        }
        return str(choices.page(lines))

    whole = told({0.01: 0.3, 0.001: 0.35, 0.0001: 0.34})
    assert "| **0.001** | **35.00** | 30 | 45 | 12 | NVIDIA H200 | 2026-11-18 |" in whole
    assert whole.endswith("`mu = 0.001` validates best.\n")
    assert whole.count("## ") == 1
    other = told({0.01: 0.36, 0.001: 0.35, 0.0001: 0.34}, 60)
    assert "`mu = 0.01` validates best. It is at an end of the grid" in other
    assert "| 30 | 60, the cap |" in other
    part = told({0.01: 0.2, 0.001: 0.35})
    assert "**" not in part, "nothing is chosen before all are run"
    assert "Not run yet: 0.0001." in part


def test_the_page_is_what_the_runs_give(choices: Any) -> None:
    """Without runs there is no page; with runs it is in the menu and in the README."""
    lines, page = ROOT / choices.FILE, ROOT / "docs" / choices.PAGE
    assert lines.exists() == page.exists()
    if lines.exists():
        told = "run python benchmarks/choices.py --docs docs"
        assert choices.page(choices.read(lines)) == page.read_text(encoding="utf-8"), told
        assert "(docs/choices.md)" in (ROOT / "README.md").read_text(encoding="utf-8"), "results row"
