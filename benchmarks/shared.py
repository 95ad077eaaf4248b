"""Whether sharing negatives costs accuracy: pairs of runs that differ in `trainer.chunk` alone.

    FEDKGE_DATA=... python benchmarks/shared.py --out DIR [--device cuda] [--lane 0/5] [--seconds 500]
    python benchmarks/shared.py --out DIR --table

Runs FB15k-237-C3 and R10 with `single` and `fedep`, TransE, RotatE and ComplEx, seeds 0 to 2, each with own
negatives and with chunks of 128, for the same epochs. Every run leaves one JSON line in DIR, and is not run
again. `--lane` takes every n-th of them, so that several processes share a device; no run begins after
`--seconds`. The table has the means over seeds, and their difference beside the seeds' standard deviations.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from fedkge.runs.data import Sources, load
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import run

DATA, METHODS, SEEDS, CHUNKS = ("fb15k-237-C3", "fb15k-237-R10"), ("single", "fedep"), (0, 1, 2), (1, 128)
MODELS: dict[str, dict[str, Any]] = {
    "transe": {"name": "transe", "dim": 128, "margin": 8.0},
    "rotate": {"name": "rotate", "dim": 128, "margin": 8.0},
    "complex": {"name": "complex", "dim": 128},
}
TRAINER = {"epochs": 3, "batch_size": 1024, "negatives": 256, "lr": 1e-3}
ROUNDS = 20


def matrix() -> list[dict[str, Any]]:
    """The runs, so ordered that a part of them is whole pairs."""
    every = itertools.product(SEEDS, MODELS, DATA, METHODS, CHUNKS)
    names = ("seed", "model", "data", "method", "chunk")
    return [dict(zip(names, values, strict=True)) for values in every]


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


def place(out: Path, of: dict[str, Any]) -> Path:
    return out / ("-".join(map(str, of.values())) + ".json")


def measure(
    of: dict[str, Any], device: torch.device, known: dict[str, Sources], rounds: int
) -> dict[str, Any]:
    one = Experiment.parse(configuration(of, rounds))
    if of["data"] not in known:
        known[of["data"]] = load(one)
    with tempfile.TemporaryDirectory() as folder:
        summary = run(one, RunFolder.create(Path(folder) / "run", one, False), device, known[of["data"]])
    found = {name: summary["metrics"]["test"][name] for name in ("mrr", "hits@10")}
    return {
        **of,
        "rounds": rounds,
        **found,
        "best_round": summary["best_round"],
        "seconds": summary["seconds"],
    }


def table(out: Path) -> str:
    """Markdown: a row for each data, model and method."""
    found: dict[tuple[str, ...], dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for file in sorted(out.glob("*.json")):
        one = json.loads(file.read_text())
        found[one["data"], one["model"], one["method"]][one["chunk"]][one["seed"]] = 100 * one["mrr"]
    lines = [
        "| data | model | method | own | shared by 128 | difference | two deviations | holds | seeds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for key, by_chunk in sorted(found.items()):
        seeds = sorted(by_chunk[1].keys() & by_chunk[128].keys())
        if not seeds:
            continue
        own, shared = ([by_chunk[chunk][seed] for seed in seeds] for chunk in CHUNKS)
        gap = statistics.mean(shared) - statistics.mean(own)
        spread = max(statistics.stdev(own), statistics.stdev(shared)) if len(seeds) > 1 else float("nan")
        holds = "yes" if gap >= -2 * spread else "no"
        means = f"{statistics.mean(own):.2f} | {statistics.mean(shared):.2f} | {gap:+.2f} | {2 * spread:.2f}"
        lines.append(f"| {' | '.join(key)} | {means} | {holds} | {len(seeds)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lane", default="0/1")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of three epochs each")
    parser.add_argument("--chunk", type=int, choices=CHUNKS, help="only these runs; both if not given")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        print(table(asked.out))
        return
    warnings.simplefilter("ignore")
    asked.out.mkdir(parents=True, exist_ok=True)
    lane, lanes = map(int, asked.lane.split("/"))
    began, known = time.monotonic(), {}
    wanted = [of for of in matrix() if asked.chunk in (None, of["chunk"])]
    for of in wanted[lane::lanes]:
        if time.monotonic() - began > asked.seconds:
            break
        file = place(asked.out, of)
        if not file.exists():
            file.write_text(json.dumps(measure(of, torch.device(asked.device), known, asked.rounds)))
            print(file.read_text(), flush=True)


if __name__ == "__main__":
    main()
