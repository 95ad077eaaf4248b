"""A federation killed at random moments, again and again, ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytest.importorskip("numba")
safetensors = pytest.importorskip("safetensors.torch")

PROGRAM = """
import sys
from pathlib import Path
import torch
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import Simulation, run
from small_federations import experiment, small_federation

one = experiment(
    method={"name": sys.argv[2]},
    rounds=60,
    codec={"name": "int8"},
    participation={"fraction": 0.7, "quorum": 0.6, "late": "use", "dropout": 0.1},
    evaluate={"every": 3, "patience": 0},
)
path = Path(sys.argv[1])
folder = RunFolder.create(path, one, resume=(path / "config.toml").exists())
run(one, folder, torch.device("cpu"), small_federation(), how=Simulation(save_every=0.0))
"""


def start(path: Path, method: str) -> subprocess.Popen[bytes]:
    places = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = {**os.environ, "PYTHONPATH": places, "NUMBA_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), method], env=environment)


def rounds(path: Path) -> int:
    journal = path / "run.jsonl"
    return journal.read_bytes().count(b'"traffic", ') if journal.exists() else 0


def tables(path: Path) -> dict[str, torch.Tensor]:
    return {
        f"{file.parent.name} {file.stem} {name}": tensor
        for file in sorted(path.glob("sites/*/*.safetensors"))
        for name, tensor in safetensors.load_file(file).items()
    }


@pytest.mark.parametrize("method", ["fede", "fedec"])
def test_killed_at_random_and_resumed_is_bit_identical(tmp_path: Path, method: str) -> None:
    assert start(tmp_path / "whole", method).wait(120) == 0
    chance = random.Random(method)
    broken = tmp_path / "broken"
    kills = 0
    for _ in range(3):
        process = start(broken, method)
        goal = rounds(broken) + chance.randint(2, 15)
        while process.poll() is None and rounds(broken) < goal:
            time.sleep(0.002)
        time.sleep(chance.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        kills += process.wait(60) == -signal.SIGKILL
        for path in ("run.jsonl", "hub/journal.jsonl", "sites/b/journal.jsonl"):
            with (broken / path).open("ab") as journal:
                journal.write(b'{"event": "round", "round": 7, "sit')  # torn, as a kill may leave it
    assert kills, "no process was killed before it ended"
    assert start(broken, method).wait(120) == 0
    whole, again = tables(tmp_path / "whole"), tables(broken)
    assert whole.keys() == again.keys()
    assert len(whole) == 15  # two tables, two lists of ranks and their triples at each of three sites
    for name, tensor in whole.items():
        assert torch.equal(tensor, again[name]), name
    first, second = (json.loads((p / "summary.json").read_text()) for p in (tmp_path / "whole", broken))
    for same in ("metrics", "sites", "traffic", "courses"):
        assert first[same] == second[same], same
