"""What federating costs: a stacked simulation against sites one by one, the exchange, and a thousand sites.

    FEDKGE_DATA=... python benchmarks/federation.py [--device cuda] [--rounds 3] [--chunk 128]

Every way of training takes its turn in one process, several times; ratios are of the medians. With `--chunk`
the whole run shares its negatives.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedkge.graphs.graph import Axis, Federation, Graph, Names
from fedkge.runs.data import Sources, load
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.progress import Watch, ignored
from fedkge.runtimes.run import Simulated, Simulation, run

R10: dict[str, Any] = {
    "rounds": 100,
    "data": {"name": "fb15k-237-R10"},
    "model": {"name": "transe", "dim": 256, "margin": 10.0},
    "trainer": {"epochs": 3, "batch_size": 1024, "negatives": 256, "lr": 1e-4},
    "method": {"name": "fedep"},
    "evaluate": {"every": 5, "patience": 0},
}
WAYS = {
    "stacked": Simulation(),
    "site by site": Simulation(stacked=False),
    "site by site, not captured": Simulation(stacked=False, captured=False),
}


def report(name: str, **values: Any) -> None:
    """Three digits are more than a machine repeats."""
    rounded = {key: float(f"{x:.3g}") if isinstance(x, float) else x for key, x in values.items()}
    print(json.dumps({"name": name, **rounded}), flush=True)


def federated(
    config: dict[str, Any],
    graphs: Federation,
    where: Path,
    device: torch.device,
    how: Simulation,
    watch: Watch = ignored,
) -> Simulated:
    one = Experiment.parse(config)
    folder = RunFolder.create(where, one, resume=False)
    return Simulated(one, Sources.of(one, graphs), folder, device, how, watch)


def sweep(run_: Simulated, number: int) -> float:
    """Seconds of one round's training, all sites."""
    started = time.perf_counter()
    for stack in run_.stacks:
        stack.fit(stack.names, number)
    if stack.tables.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def ways(device: torch.device, turns: int, graphs: Federation, epochs: int) -> None:
    """A round of R10's training, each way in turn, forth and back; the first two turns are not counted."""
    trainer = {**R10["trainer"], "epochs": epochs}
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            name: federated({**R10, "trainer": trainer}, graphs, Path(folder) / name, device, how)
            for name, how in WAYS.items()
            if device.type == "cuda" or how.captured
        }
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(turns + 2):
            for name in list(runs)[:: 1 if turn % 2 else -1]:
                seconds[name].append(sweep(runs[name], turn + 1))
    median = {name: statistics.median(values[2:]) for name, values in seconds.items()}
    kind = "gpu-" if device.type == "cuda" else ""
    common = {f"{name.replace(' ', '_').replace(',', '')}_s": value for name, value in median.items()}
    common["epochs"] = epochs
    report(f"{kind}stacked", ratio=median["site by site"] / median["stacked"], **common)
    if kind:
        report("gpu-captured", ratio=median["site by site, not captured"] / median["stacked"], **common)


def whole(device: torch.device, rounds: int, graphs: Federation, method: str, chunk: int) -> None:
    """A run of R10 as a user has it: training, exchange, validation, checkpoints, results."""
    every = 5 if rounds >= 5 else rounds
    config = {
        **R10,
        "rounds": rounds,
        "trainer": {**R10["trainer"], "chunk": chunk},
        "method": {"name": method},
        "evaluate": {"every": every, "patience": 0},
    }
    one = Experiment.parse(config)
    with tempfile.TemporaryDirectory() as folder:
        summary = run(one, RunFolder.create(Path(folder) / "r", one, False), device, graphs)
    seconds = summary["seconds"]
    kind = "gpu-" if device.type == "cuda" else ""
    # a round is what is left without ranking and checkpoints
    share = seconds["exchange"] / (seconds["train"] + seconds["exchange"])
    parts = {f"{part}_s": value for part, value in seconds.items()}
    of = f"{'' if method == R10['method']['name'] else f'-{method}'}{'-shared' if chunk > 1 else ''}"
    report(f"{kind}federation{of}", rounds=rounds, mrr=summary["metrics"]["test"]["mrr"], **parts)
    report(f"{kind}overhead{of}", ratio=share, rounds=rounds)


def thousand_sites(device: torch.device, sites: int = 1000, count: int = 100) -> None:
    """One round of many small sites, everything but loading and results."""
    random = np.random.default_rng(0)
    graphs = {}
    for number in range(sites):
        chosen = random.choice(20_000, 60, replace=False)
        triples = np.unique(random.integers(0, [60, 5, 60], (2 * count, 3)), axis=0)
        parts = np.split(random.permutation(triples)[: count + 10], [count, count + 5])
        entities = Names([f"e{i}" for i in chosen])
        graphs[f"site {number}"] = Graph(entities, Names([f"r{i}" for i in range(5)], Axis.RELATION), *parts)
    config = {
        "rounds": 6,
        "data": {"name": "made up"},
        "model": {"name": "transe", "dim": 32},
        "trainer": {"epochs": 1, "batch_size": 512, "negatives": 32, "lr": 1e-3},
        "method": {"name": "fedep"},
        "evaluate": {"every": 6, "patience": 0},
    }
    with tempfile.TemporaryDirectory() as folder:
        marks: list[float] = []
        watch: Watch = lambda progress: marks.append(time.perf_counter())  # noqa: E731
        one = federated(config, graphs, Path(folder) / "r", device, Simulation(), watch)
        one.play()
        rounds = np.diff(marks[:5]).tolist()
    report(
        "thousand-sites", seconds=statistics.median(rounds), sites=sites, train=one.clock.seconds["train"] / 6
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, help="of the whole run; unset: 100 on a GPU, 2 on a CPU")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--method", default="fedep", help="of the whole run")
    parser.add_argument(
        "--chunk", type=int, default=1, help="of the whole run: positives that share negatives"
    )
    parser.add_argument("--only", default="ways,whole,thousand")
    options = parser.parse_args()
    device, only = torch.device(options.device), options.only.split(",")
    graphs = {} if only == ["thousand"] else load(Experiment.parse(R10)).named
    if "ways" in only:
        ways(device, options.turns, graphs, 3 if device.type == "cuda" else 1)
    if "whole" in only:
        rounds = options.rounds or (100 if device.type == "cuda" else 2)
        whole(device, rounds, graphs, options.method, options.chunk)
    if "thousand" in only:
        thousand_sites(device)


if __name__ == "__main__":
    main()
