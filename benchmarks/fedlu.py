"""What distilling costs: a round of FedLU's training against one of FedE's, the same sites, in turns.

    FEDKGE_DATA=... python benchmarks/fedlu.py [--device cuda] [--turns 3] [--sites 3]

The exchange is left out: it is the same for both, and would only bring the ratio nearer to 1.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import torch

from federation import R10, federated, report, sweep
from fedkge.graphs.graph import Federation
from fedkge.runs.data import load
from fedkge.runs.experiment import Experiment
from fedkge.runtimes.run import Simulation

MODELS = {"transe": 10.0, "rotate": 9.0, "complex": 9.0}  # margins
METHODS = ("fedep", "fedlu")


def cost(model: str, graphs: Federation, device: torch.device, turns: int, epochs: int) -> None:
    """Medians over the turns, which go forth and back; the first of each is not counted."""
    parts = {
        "model": {"name": model, "dim": 256, "margin": MODELS[model]},
        "trainer": {**R10["trainer"], "epochs": epochs},
    }
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            name: federated(
                {**R10, **parts, "method": {"name": name}}, graphs, Path(folder) / name, device, Simulation()
            )
            for name in METHODS
        }
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(turns + 1):
            for name in METHODS[:: 1 if turn % 2 else -1]:
                seconds[name].append(sweep(runs[name], turn + 1))
    median = {f"{name}_s": statistics.median(values[1:]) for name, values in seconds.items()}
    kind = "gpu-" if device.type == "cuda" else ""
    ratio = median["fedlu_s"] / median["fedep_s"]
    report(f"{kind}fedlu-{model}", ratio=ratio, **median, sites=len(graphs), epochs=epochs)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--sites", type=int, help="of FB15k-237-R10; unset: all on a GPU, 3 on a CPU")
    parser.add_argument("--models", default=",".join(MODELS))
    options = parser.parse_args()
    device = torch.device(options.device)
    gpu = device.type == "cuda"
    graphs = load(Experiment.parse(R10)).named
    some = dict(list(graphs.items())[: options.sites or (len(graphs) if gpu else 3)])
    for model in options.models.split(","):
        cost(model, some, device, options.turns, 3 if gpu else 1)


if __name__ == "__main__":
    main()
