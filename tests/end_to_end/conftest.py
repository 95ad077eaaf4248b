"""A folder with a small federation and an experiment on it, and one run of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from commands import process, write_home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    write_home(home)
    return home


@pytest.fixture
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test works in that folder, and knows no other data."""
    monkeypatch.chdir(home)
    monkeypatch.delenv("FEDKGE_DATA", raising=False)
    return home


@pytest.fixture(scope="module")
def done(home: Path) -> subprocess.CompletedProcess[str]:
    """`fedkge run tiny.toml` as a process of its own; it leaves runs/tiny."""
    return process("run", "tiny.toml", cwd=home)
