"""Records that come from elsewhere: what `fedkge paper` refuses, and what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from commands import ENVIRONMENT, fedkge, files, refused
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


def test_a_torn_last_line_is_run_again(project: Path, record: Record) -> None:
    path = project / "new.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert refused("paper", "add", "new.jsonl").startswith("new.jsonl, line 1: not JSON")
    again = fedkge("paper", "p-table1", "--rows", "*/fedep", "--records", "new.jsonl")
    assert again.exit_code == 0, again.output
    assert [json.loads(line) for line in path.read_text().splitlines()] == [record]
