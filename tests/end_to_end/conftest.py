"""A folder with a small federation and an experiment on it, and one run of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import process, write_home
from fedkge import plugins
from small_paper import write_checkout


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


@pytest.fixture
def project(tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test works in a checkout with a paper of its own, about that federation."""
    root = tmp_path / "project"
    write_checkout(root, here / "federation")
    monkeypatch.chdir(root)
    return root


@pytest.fixture(scope="module")
def done(home: Path) -> subprocess.CompletedProcess[str]:
    """`fedkge run tiny.toml` as a process of its own; it leaves runs/tiny."""
    return process("run", "tiny.toml", cwd=home)


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """As in a new process of a user who has not run any plugin; what a test registers is forgotten."""
    from fedkge.methods import METHODS
    from fedkge.models import MODELS
    from fedkge.training.losses import LOSSES

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for registry in (METHODS, MODELS):
        monkeypatch.setattr(registry, "_classes", {name: registry[name] for name in registry})
    monkeypatch.setattr(plugins, "_running", {})
    monkeypatch.setattr(plugins, "_trusted", [])
    monkeypatch.setattr(plugins, "_warned", set())
    losses = dict(LOSSES)
    yield
    LOSSES.clear()
    LOSSES.update(losses)
