"""Whether sharing negatives costs accuracy: runs that differ in `trainer.chunk` only.

    FEDKGE_DATA=... python benchmarks/shared.py --out FILE [--device cuda] [--lanes 5] [--seconds 450]
    python benchmarks/shared.py --out FILE --table [--setting quick]

Runs FB15k-237-C3 and R10 with `single` and `fedep`, TransE, RotatE and ComplEx, seeds 0 to 2, each with own
negatives and with every chunk of `--chunks`, for the same epochs. `--setting preset` trains as the presets in
examples/ do, for about as many rounds as they take (`PRESET`). `--setting quick` has a ten times larger
learning rate and 30 rounds.

Every run adds one JSON line to FILE, and is not run again. All runs of one row of the table come one after
another. `--lanes` processes share the device; no run begins after `--seconds`. The table has the means over
seeds, and their difference beside the seeds' standard deviations.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from fedkge.runs.data import Sources, load
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import run
from shared_table import lines, table

DATA, METHODS, SEEDS = ("fb15k-237-R10", "fb15k-237-C3"), ("single", "fedep"), (0, 1, 2)
MODELS: dict[str, dict[str, Any]] = {
    "transe": {"name": "transe", "dim": 128, "margin": 8.0},
    "rotate": {"name": "rotate", "dim": 128, "margin": 8.0},
    "complex": {"name": "complex", "dim": 128},
}
TRAINER = {"epochs": 3, "negatives": 256}
QUICK = {"batch_size": 1024, "lr": 1e-3}
FEDS = {"batch_size": 512, "lr": 1e-4}  #: as the presets of FedS (2024)
L3 = {"batch_size": 1024, "lr": 1e-3, "subsampling": True, "l3": 1e-2}  #: as the presets of ComplEx with L3
PRESET: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, int]]] = {  #: trainer, model, rounds
    "transe": (FEDS, {}, {"single": 100, "fedep": 120}),
    "rotate": (FEDS, {}, {"single": 60, "fedep": 90}),
    "complex": (L3, {"margin": 2.0}, {"single": 20, "fedep": 50}),
}
ROUNDS = 30  #: of the quick setting
ROW, RUN = ("setting", "model", "data", "method"), ("seed", "chunk")  #: a row of the table, a run in it


def matrix(setting: str, chunks: Sequence[int]) -> list[dict[str, Any]]:
    """The runs, row by row."""
    every = itertools.product((setting,), MODELS, DATA, METHODS, SEEDS, chunks)
    return [dict(zip((*ROW, *RUN), values, strict=True)) for values in every]


def chosen(setting: str, chunks: Sequence[int], parts: Sequence[str]) -> list[dict[str, Any]]:
    """The runs of rows with one of these `parts` in "model data method", in the order of the parts."""
    every = {key(of): of for of in matrix(setting, chunks)}
    found = [name for part in parts for name in every if part in " ".join(name[1 : len(ROW)])]
    return [every[name] for name in dict.fromkeys(found)]


def key(of: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(of[name] for name in (*ROW, *RUN))


def configuration(of: dict[str, Any]) -> dict[str, Any]:
    trainer, model, rounds = QUICK, {}, ROUNDS
    if of["setting"] == "preset":
        trainer, model, by_method = PRESET[of["model"]]
        rounds = by_method[of["method"]]
    return {
        "seed": of["seed"],
        "rounds": rounds,
        "data": {"name": of["data"]},
        "model": MODELS[of["model"]] | model,
        "trainer": {**TRAINER, **trainer, "chunk": of["chunk"]},
        "method": {"name": of["method"]},
        "evaluate": {"every": 5, "patience": 0},
    }


@cache
def sources(data: str) -> Sources:
    """Read once in each process."""
    one = next(of for of in matrix("quick", (1,)) if of["data"] == data)
    return load(Experiment.parse(configuration(one)))


def measure(of: dict[str, Any], device: str, until: float) -> dict[str, Any] | None:
    """What a run's summary says; None if it is too late to begin."""
    if time.time() > until:
        return None
    warnings.simplefilter("ignore")
    asked = configuration(of)
    one = Experiment.parse(asked)
    with tempfile.TemporaryDirectory() as folder:
        place = RunFolder.create(Path(folder) / "run", one, False)
        summary = run(one, place, torch.device(device), sources(of["data"]))
    found = {name: summary["metrics"]["test"][name] for name in ("mrr", "hits@10")}
    rest = {"best_round": summary["best_round"], "seconds": summary["seconds"]}
    return {**of, "rounds": asked["rounds"], **found, **rest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a file of JSON lines")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lanes", type=int, default=1, help="runs side by side")
    parser.add_argument("--setting", default="preset", choices=("preset", "quick"))
    parser.add_argument("--chunks", type=int, nargs="+", default=[1, 128], help="1: own negatives")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of rows' names, in this order")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        print(table(asked.out, asked.setting))
        return
    done = {key(one) for one in lines(asked.out)}
    rows = chosen(asked.setting, asked.chunks, asked.only)
    wanted = [of for of in rows if key(of) not in done]
    how = {"device": asked.device, "until": time.time() + asked.seconds}
    with multiprocessing.get_context("spawn").Pool(asked.lanes) as lanes, asked.out.open("a") as out:
        for found in lanes.imap_unordered(partial(measure, **how), wanted):
            if found is not None:
                print(json.dumps(found), file=out, flush=True)
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
