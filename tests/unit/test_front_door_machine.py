"""The front door, item 13: the command line sets up the machine, and importing fedkge does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import fedkge
from fedkge import machine


def elsewhere(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program of somebody else, in an environment that sets nothing of ours."""
    own = {k: v for k, v in os.environ.items() if k not in (*machine.SETTINGS, *machine.THREADS)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=own | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_13_importing_fedkge_changes_no_setting() -> None:
    code = "import os; before = dict(os.environ); import fedkge, fedkge.cli.main; assert os.environ == before"
    elsewhere(code)


MAIN = """
import json, os, sys
from fedkge.cli import main
main.app = lambda: print(json.dumps([dict(os.environ), 'torch' in sys.modules]))
main.main()
"""


def test_13_the_command_line_makes_them_before_torch_is_imported() -> None:
    found, torch_is_there = json.loads(elsewhere(MAIN).stdout)
    assert not torch_is_there
    assert found.items() >= machine.SETTINGS.items()
    assert [found[name] for name in machine.THREADS] == [str(machine.cores())] * 2


def test_13_what_the_user_has_set_stays() -> None:
    found, _ = json.loads(elsewhere(MAIN, OMP_WAIT_POLICY="active", NUMBA_NUM_THREADS="7").stdout)
    assert found["OMP_WAIT_POLICY"] == "active"
    assert [found[name] for name in machine.THREADS] == ["7", "7"]


@pytest.mark.skipif(sys.platform != "linux", reason="torch for Linux has GNU's OpenMP")
def test_13_openmp_of_torch_does_not_spin() -> None:
    code = "from fedkge.machine import prepare; prepare(); import torch"
    shown = elsewhere(code, OMP_DISPLAY_ENV="true").stderr
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in shown


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "unlearn", "hub", "site", "peer"])
def test_13_threads_is_an_option_of_every_command_that_trains(command: str) -> None:
    assert "Invalid value for '--threads'" in fedkge(command, "--threads", "0").stderr


def test_13_threads_sets_torch_and_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"NUMBA_NUM_THREADS": "9"})
    machine.use_threads(3)
    assert machine.threads() == 3
    assert machine.environment(2)["OMP_NUM_THREADS"] == "2"


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "OWN_GROUP", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    return tmp_path


def test_13_a_container_uses_its_share_of_the_machine(groups: Path) -> None:
    assert machine.cores() == 64  # no groups at all
    (groups / "own").write_text("0::/pod/site\n")
    (groups / "pod" / "site").mkdir(parents=True)
    (groups / "pod" / "site" / "cpu.max").write_text("max 100000\n")
    assert machine.cores() == 64
    (groups / "pod" / "cpu.max").write_text("150000 100000\n")
    assert machine.cores() == 2


def test_13_so_it_does_in_the_first_version_of_groups(groups: Path) -> None:
    (groups / "own").write_text("3:cpuset:/\n1:cpu,cpuacct:/a\n")
    folder = groups / "cpu,cpuacct" / "a"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("-1\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.cores() == 64
    (folder / "cpu.cfs_quota_us").write_text("300000\n")
    assert machine.cores() == 3
