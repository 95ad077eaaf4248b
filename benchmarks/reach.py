"""How long training takes to become accurate: one JSON line with the validation MRR after every round.

    FEDKGE_DATA=... python benchmarks/reach.py [--device cuda] [--rounds 30] [--folder DIR]
    FEDKGE_DATA=... python benchmarks/reach.py --pykeen

Trains FB15k-237-C3 with TransE, every site alone: dim 128, batches of 1024, 256 negatives shared by 128,
rounds of three epochs, an epoch with heads and tails. Seconds are those of training, without the ranking of
validation triples. `reached` is the first round with 99 % of the best MRR of the run, or of `--of`.

`--pykeen` measures how fast PyKEEN trains the same model in a process of its own, with two batches an epoch.
It gives the triples per second; `reach_plot.py` multiplies them with the triples of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from turns import TURNS, load, pykeen, told

CONFIGURATION: dict[str, Any] = {
    "seed": 0,
    "data": {"name": "fb15k-237-C3"},
    "model": {"name": "transe", "dim": 128, "margin": 8.0},
    "trainer": {"epochs": 3, "batch_size": 1024, "negatives": 256, "chunk": 128, "lr": 1e-3},
    "method": {"name": "single"},
    "evaluate": {"every": 1, "patience": 0},
}
ENOUGH = 0.99  #: of the best MRR


def trained(device: str, rounds: int, of: float | None, where: Path) -> dict[str, Any]:
    """The course of one run, which goes on where it was stopped."""
    import torch

    from fedkge.reports.folders.load import load_run
    from fedkge.runs.experiment import Experiment
    from fedkge.runs.folder import RunFolder
    from fedkge.runtimes.run import run

    warm = CONFIGURATION | {"rounds": 1}  # compiles kernels
    asked = CONFIGURATION | {"rounds": rounds}
    place = where / "run"
    for configuration, folder in ((warm, where / "warm"), (asked, place)):
        one = Experiment.parse(configuration)
        if not (folder / "summary.json").exists():
            run(one, RunFolder.create(folder, one, folder.exists()), torch.device(device))
    found = load_run(place)
    seconds, triples, course = 0.0, 0, []
    for number in sorted(found.rounds):
        seconds += found.rounds[number].seconds
        triples += found.rounds[number].triples
        course.append([round(seconds, 3), triples, round(found.validations[number].mrr, 5)])
    target = ENOUGH * (of or max(mrr for *_, mrr in course))
    reached = next((place for place, (*_, mrr) in enumerate(course) if mrr >= target), None)
    line: dict[str, Any] = {"name": f"{'gpu-' if device == 'cuda' else ''}reach", "rounds": rounds}
    if reached is not None:
        line |= {"seconds": course[reached][0], "reached": reached + 1, "triples": course[reached][1]}
    return line | {"mrr": max(mrr for *_, mrr in course), "course": course}


def pykeens() -> dict[str, Any]:
    """PyKEEN as its users run it."""
    before, dim = load(), CONFIGURATION["model"]["dim"]
    with pykeen(
        "train", "transe", Path(os.environ["FEDKGE_DATA"]) / "fb15k-237-C3" / "2", "--dim", dim
    ) as one:
        speeds = [one.turn()["per_s"] for _ in range(TURNS + 1)][1:]
    return {"name": "reach-pykeen", **told("triples_per_s", speeds), "turns": TURNS, **before, "dim": dim}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--of", type=float, help="final MRR of a longer run, of which 99 %% count as reached")
    parser.add_argument(
        "--folder", type=Path, help="keep the run here; stopped by SIGTERM, it goes on when asked again"
    )
    parser.add_argument("--pykeen", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.pykeen:
        print(json.dumps(pykeens()), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        where = asked.folder or Path(folder)
        print(json.dumps(trained(asked.device, asked.rounds, asked.of, where)), flush=True)


if __name__ == "__main__":
    main()
