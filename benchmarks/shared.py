"""Whether sharing negatives costs accuracy: pairs of runs that differ in `trainer.chunk` alone.

    FEDKGE_DATA=... python benchmarks/shared.py --out FILE [--device cuda] [--lanes 5] [--seconds 450]
    python benchmarks/shared.py --out FILE --table

Runs FB15k-237-C3 and R10 with `single` and `fedep`, TransE, RotatE and ComplEx, seeds 0 to 2, each with own
negatives and with chunks of 128, for the same epochs. Every run adds one JSON line to FILE, and is not run
again. All runs of one row of the table come one after another. `--lanes` processes share the device; no run
begins after `--seconds`. The table has the means over seeds, and their difference beside the seeds' standard
deviations.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import tempfile
import time
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from fedkge.runs.data import Sources, load
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import run
from shared_table import CHUNKS, lines, table

DATA, METHODS, SEEDS = ("fb15k-237-C3", "fb15k-237-R10"), ("single", "fedep"), (0, 1, 2)
MODELS: dict[str, dict[str, Any]] = {
    "transe": {"name": "transe", "dim": 128, "margin": 8.0},
    "rotate": {"name": "rotate", "dim": 128, "margin": 8.0},
    "complex": {"name": "complex", "dim": 128},
}
TRAINER = {"epochs": 3, "batch_size": 1024, "negatives": 256, "lr": 1e-3}
ROUNDS = 30
ROW, RUN = ("model", "data", "method"), ("seed", "chunk")  #: what names a row of the table, and a run in it


def matrix() -> list[dict[str, Any]]:
    """The runs, row by row."""
    every = itertools.product(MODELS, DATA, METHODS, SEEDS, CHUNKS)
    return [dict(zip((*ROW, *RUN), values, strict=True)) for values in every]


def key(of: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(of[name] for name in (*ROW, *RUN))


def configuration(of: dict[str, Any], rounds: int) -> dict[str, Any]:
    return {
        "seed": of["seed"],
        "rounds": rounds,
        "data": {"name": of["data"]},
        "model": MODELS[of["model"]],
        "trainer": {**TRAINER, "chunk": of["chunk"]},
        "method": {"name": of["method"]},
        "evaluate": {"every": 5, "patience": 0},
    }


@cache
def sources(data: str) -> Sources:
    """Read once in each process."""
    return load(Experiment.parse(configuration(next(of for of in matrix() if of["data"] == data), 1)))


def measure(of: dict[str, Any], device: str, rounds: int, until: float) -> dict[str, Any] | None:
    """What a run's summary says; None if it is too late to begin."""
    if time.time() > until:
        return None
    warnings.simplefilter("ignore")
    one = Experiment.parse(configuration(of, rounds))
    with tempfile.TemporaryDirectory() as folder:
        place = RunFolder.create(Path(folder) / "run", one, False)
        summary = run(one, place, torch.device(device), sources(of["data"]))
    found = {name: summary["metrics"]["test"][name] for name in ("mrr", "hits@10")}
    rest = {"best_round": summary["best_round"], "seconds": summary["seconds"]}
    return {**of, "rounds": rounds, **found, **rest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a file of JSON lines")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lanes", type=int, default=1, help="runs side by side")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of three epochs each")
    parser.add_argument("--only", default="", help="rows whose model, data and method contain this text")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        print(table(asked.out))
        return
    done = {key(one) for one in lines(asked.out)}
    rows = [of for of in matrix() if asked.only in " ".join(of[name] for name in ROW)]
    wanted = [of for of in rows if key(of) not in done]
    how = {"device": asked.device, "rounds": asked.rounds, "until": time.time() + asked.seconds}
    with multiprocessing.get_context("spawn").Pool(asked.lanes) as lanes, asked.out.open("a") as out:
        for found in lanes.imap_unordered(partial(measure, **how), wanted):
            if found is not None:
                print(json.dumps(found), file=out, flush=True)
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
