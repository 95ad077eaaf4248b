"""What one hostile site does to the others, by how the hub combines rows: FB15k-237-R10, one site sends 1e9.

    FEDKGE_DATA=... python benchmarks/hostile.py [--device cuda] [--rounds 100] [--rules mean,bounded]

The federation without that site is trained first. Each line has the test MRR of the other nine sites, over
all their questions, and the lowest ratio that any of them has to its own MRR in the run without that site.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedkge.evaluation import combined
from fedkge.exchange.rows import Message
from fedkge.graphs.graph import Federation
from fedkge.nodes.learner import Fitted
from fedkge.nodes.result import read_result
from fedkge.runs.data import Sources, load
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.simulate import Simulated

HOSTILE, HUGE = "9", 1e9
R10: dict[str, Any] = {
    "data": {"name": "fb15k-237-R10"},
    "model": {"name": "transe", "dim": 256, "margin": 10.0},
    "trainer": {"epochs": 3, "batch_size": 1024, "negatives": 256, "lr": 1e-4},
    "method": {"name": "fedep"},
    "evaluate": {"every": 5, "patience": 0},
}


def lying(run: Simulated) -> None:
    """Every number that the hostile site uploads is huge."""
    node = run.sites[HOSTILE]
    finish = node.finish

    def lie(round: int, trained: Fitted) -> Message:
        message = finish(round, trained)
        return replace(message, body={name: torch.full_like(t, HUGE) for name, t in message.body.items()})

    node.finish = lie  # type: ignore[method-assign]


def others(
    rule: str, graphs: Federation, device: torch.device, rounds: int
) -> Mapping[str, Mapping[str, float]]:
    """The test metrics of all sites but the hostile one, which takes part if its graph is there."""
    one = Experiment.parse({**R10, "rounds": rounds, "aggregate": {"name": rule}})
    with tempfile.TemporaryDirectory() as home:
        folder = RunFolder.create(Path(home) / "run", one, resume=False)
        run = Simulated(one, Sources.of(one, graphs), folder, device)
        if HOSTILE in run.sites:
            lying(run)
        run.play()
        sites = [site for site in run.sites if site != HOSTILE]
        return {s: read_result(folder.home(s, run.members[s]))["metrics"]["test"][s]["both"] for s in sites}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--rules", default="mean,bounded,trimmed,median")
    options = parser.parse_args()
    device = torch.device(options.device)
    graphs = load(Experiment.parse(R10)).named
    without = {site: graph for site, graph in graphs.items() if site != HOSTILE}
    alone = others("mean", without, device, options.rounds)
    mrr = combined(alone.values())["mrr"]
    print(json.dumps({"name": "without", "rounds": options.rounds, "mrr": round(mrr, 4)}), flush=True)
    for rule in options.rules.split(","):
        started = time.perf_counter()
        found = others(rule, graphs, device, options.rounds)
        now = combined(found.values())["mrr"]
        least = min(found[site]["mrr"] / alone[site]["mrr"] for site in found)
        values = {"mrr": round(now, 4), "ratio": round(now / mrr, 4), "least": round(least, 4)}
        print(
            json.dumps({"name": rule, **values, "seconds": round(time.perf_counter() - started, 1)}),
            flush=True,
        )


if __name__ == "__main__":
    main()
