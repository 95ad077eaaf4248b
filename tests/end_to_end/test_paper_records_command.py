"""Records that come from elsewhere, seeds and patterns: what `fedkge paper` refuses, and what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from commands import ENVIRONMENT, answer, fedkge, files, refused
from fedkge.papers.records import Record, read_lines, read_records

pytest.importorskip("numba")


@pytest.fixture
def record(project: Path) -> Record:
    """What a run on another machine has come to; it is in new.jsonl."""
    ran = fedkge("paper", "p-table1", "--rows", "*/fedep", "--records", "new.jsonl")
    assert ran.exit_code == 0, ran.output
    (found,) = read_lines(project / "new.jsonl").values()
    return found


def module(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m fedkge.papers`, as on a machine without the command line's packages."""
    line = [sys.executable, "-m", "fedkge.papers", *arguments]
    return subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def test_one_wrong_line_keeps_all_from_being_taken_in(project: Path, record: Record) -> None:
    cut = {name: value for name, value in record.items() if name != "bytes"}
    (project / "wrong.jsonl").write_text(json.dumps(record) + "\n" + json.dumps(cut) + "\n")
    before = files(project)
    told = "wrong.jsonl, line 2: bytes is missing; a record of a run has valid, sites, curve"
    assert refused("paper", "add", "new.jsonl", "wrong.jsonl").startswith(told)
    gone_on = ("p-table1", "--rows", "*/single", "--records", "wrong.jsonl")
    assert refused("paper", *gone_on).startswith(told)
    failed = module(*gone_on)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith(f"error: {told}")
    assert "Traceback" not in failed.stderr
    assert files(project) == before
    taken = fedkge("paper", "add", "new.jsonl")
    assert taken.exit_code == 0, taken.output
    assert list(read_records(project).values()) == [record]


def test_files_that_cannot_be_taken_in(project: Path) -> None:
    before = files(project)
    assert refused("paper", "add").startswith("add: expected files of records, as in `fedkge paper add")
    assert refused("paper", "add", "gone.jsonl").startswith("gone.jsonl: no such file; expected one that")
    assert refused("paper", "add", "examples") == "examples: Is a directory"
    assert files(project) == before


def test_words_stand_alone(project: Path) -> None:
    before = files(project)
    assert refused("paper", "list", "docs") == "paper list: expected nothing after it, got 'docs'"
    assert refused("paper", "docs", "p-table1") == "paper docs: expected nothing after it, got 'p-table1'"
    assert refused("paper", "p-table1", "docs").startswith(
        "paper: 'docs' is no table; expected tables and figures, or `fedkge paper docs` in"
    )
    told = "paper docs: --rows, --dry-run has no effect, because nothing is run; expected options: none"
    assert refused("paper", "docs", "--dry-run", "--rows", "x") == told
    assert "add: --seeds has no effect" in refused("paper", "add", "new.jsonl", "--seeds", "1")
    assert refused("paper", "list", "--rows", "x").endswith("expected options: --json")
    assert files(project) == before
    assert answer("paper", "list")[0]["name"] == "p-table1"


def test_a_torn_last_line_is_run_again(project: Path, record: Record) -> None:
    path = project / "new.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert refused("paper", "add", "new.jsonl").startswith("new.jsonl, line 1: not JSON")
    again = fedkge("paper", "p-table1", "--rows", "*/fedep", "--records", "new.jsonl")
    assert again.exit_code == 0, again.output
    assert [json.loads(line) for line in path.read_text().splitlines()] == [record]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        ("-1", "--seeds: expected whole numbers from 0 on, as in 0,1,2, got -1"),
        ("0,-2", "--seeds: expected whole numbers from 0 on, as in 0,1,2, got -2"),
        ("0.5", "--seeds: expected whole numbers, as in 0,1,2, got '0.5'"),
        ("1,0,1", "--seeds: 1 stands twice"),
        ("1,01", "--seeds: 1 stands twice"),
        ("", "--seeds: expected a list, as in 0,1,2, got ''"),
    ],
)
def test_seeds_that_are_none(seeds: str, told: str) -> None:
    assert refused("paper", "p-table1", "--seeds", seeds, "--dry-run") == told


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        (["-1"], "from 0 on, as in 0,1,2, got -1"),
        (["2", "2"], "2 stands twice"),
        (["a"], "invalid int value"),
    ],
)
def test_seeds_that_are_none_without_the_command_line(seeds: list[str], told: str) -> None:
    failed = module("p-table1", "--records", "new.jsonl", "--dry-run", "--seeds", *seeds)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert told in failed.stderr.splitlines()[-1]


@pytest.mark.usefixtures("project")
def test_patterns_say_what_there_is_instead_of_runs() -> None:
    note = "note: p-table9: no runs; instead: its data needs credentials"
    alone = fedkge("paper", "p-table[89]", "--dry-run")
    assert alone.exit_code == 0, alone.output
    assert alone.stderr.splitlines() == [note]
    assert answer("paper", "p-table[89]", "--rows", "fedep", "--dry-run") == []
    both = fedkge("paper", "p-*", "--dry-run", "--json")
    assert note in both.stderr.splitlines()
    assert len(json.loads(both.stdout)["result"]) == 4
    assert note in module("p-*", "--records", "new.jsonl", "--dry-run").stderr.splitlines()
