"""Commands as a user runs them, and a federation that is small enough to run them on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner, Result

from fedkge.cli.main import app
from fedkge.reports.folders.load import events

LINE = [sys.executable, "-c", "from fedkge.cli.main import main; main()"]
ENVIRONMENT = {**os.environ, "NUMBA_NUM_THREADS": "1"}
ABSENT = ("typer", "click", "rich", "plotly", "pandas")  #: packages that a GPU machine may lack
CONFIG = """
rounds = 6
data     = { path = "federation" }
model    = { name = "transe", dim = 6, margin = 4.0 }
trainer  = { epochs = 1, batch_size = 64, negatives = 4, lr = 2e-2 }
evaluate = { every = 2, patience = 0 }
"""


def write_site(folder: Path, seed: int, relations: str, apart: Collection[str] = ()) -> list[str]:
    """A graph over e0 .. e19 whose valid and test are of the same kind as train; its lines.

    None of them is among `apart`: no site trains on what another is measured by.
    """
    random = np.random.default_rng(seed)
    rows = np.unique(random.integers(0, [20, len(relations), 20], (220, 3)), axis=0)
    lines = [f"e{h}\t{relations[r]}\te{t}\n" for h, r, t in random.permutation(rows)]
    lines = [line for line in lines if line not in apart]
    folder.mkdir(parents=True)
    for split, part in {"train": lines[40:], "valid": lines[:20], "test": lines[20:40]}.items():
        (folder / f"{split}.tsv").write_text("".join(part))
    return lines


def write_home(home: Path) -> None:
    """A federation of two sites that share entities and a relation, and an experiment on it."""
    north = write_site(home / "federation" / "north", 0, "ab")
    write_site(home / "federation" / "south", 1, "bcd", north)
    (home / "tiny.toml").write_text(CONFIG)


def without_packages(folder: Path) -> dict[str, str]:
    """An environment in which the packages of the command line cannot be imported; `folder` is made."""
    folder.mkdir(exist_ok=True)
    for name in ABSENT:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is not here')\n")
    return {**ENVIRONMENT, "PYTHONPATH": str(folder)}


def process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [*LINE, *arguments], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def started(*arguments: object) -> subprocess.Popen[str]:
    """The same, under way; it can be interrupted even where the tests run in the background and cannot."""
    line = [*LINE, *map(str, arguments)]
    return subprocess.Popen(
        line,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_interruptible,
    )


def _interruptible() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def fedkge(*arguments: object) -> Result:
    """The command in this process, which is ten times faster."""
    return CliRunner().invoke(app, list(map(str, arguments)))


def answer(*arguments: object) -> Any:
    """What the command prints as JSON, which is all that it prints."""
    found = fedkge(*arguments, "--json")
    assert found.exit_code == 0, found.output
    return printed(found.stdout)


def printed(text: str) -> Any:
    """The result in what `--json` prints, whose shape all commands share."""
    found = json.loads(text)
    assert list(found) == ["version", "result"]
    assert found["version"] == 1
    return found["result"]


def refused(*arguments: object) -> str:
    """The one line on standard error of a command that exits with 2."""
    found = fedkge(*arguments)
    assert found.exit_code == 2, found.output
    assert found.stdout == ""
    (line,) = notes(found.stderr).splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def made(run: Path | str) -> dict[str, bytes]:
    """What the sites of a run have made: all their files but journals, which tell times."""
    return {name: file for name, file in files(Path(run) / "sites").items() if "journal" not in name}


def notes(stderr: str) -> str:
    """What is said besides the line about alignment, and the line that every round has without a terminal."""
    lines = stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not re.search(r": round \d+/\d+  loss |^alignment: ", line))


def summary_of(run: Path | str) -> dict[str, Any]:
    return json.loads((Path(run) / "summary.json").read_text())


def journal_of(run: Path | str) -> list[dict[str, Any]]:
    """What happened in a run, as its nodes and its runtime tell."""
    return list(events(Path(run)))
