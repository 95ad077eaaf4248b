"""How fast a site trains, beside PyKEEN's training loop: one JSON line per model.

    FEDKGE_DATA=... python benchmarks/train.py --model transe --model rotate --model complex

Both train FB15k-237-C3's site 2 with batches of 1024 triples, 256 negatives each, dim 256 and Adam over
whole tables, taking turns; a triple counts once with its 256 negatives. PyKEEN runs in a process of its own,
with all threads, as its users run it (pykeen_alone.py). Its loss is its self-adversarial one (NSSALoss), its
negatives are not filtered (ours are), its RotatE and ComplEx are its own. The ratio is the median of the
ratios of turns. Memory is the peak of a process of its own, the imports included. On a CUDA device only we
are measured.

`--shared` measures negatives that 128 positives share beside own negatives, in turns in this process, and
PyKEEN afterwards. `--precision high` lets a CUDA device make products of three TF32 products each, as
`torch.set_float32_matmul_precision` says; the row's name ends with the precision.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import torch

from fedkge.graphs.files import read_graph
from fedkge.graphs.graph import Graph
from fedkge.models import MODELS, Tables
from fedkge.randomness import name_keys
from fedkge.training import Corpus, Trainer, Training
from peak import own_peak
from turns import TURNS, load, pykeen, told

BATCH, NEGATIVES, DIM = 1024, 256, 256
CHUNK = 128  #: positives that share negatives
BATCHES = 100  #: of a turn on a CPU: of fewer, dealing out the epoch's triples would be too large a part
EPOCHS = 3  #: of a turn on a GPU: a round of the papers' presets
PRECISIONS = ("highest", "high", "medium")  #: of products, the default first
MODELS_MEASURED = ("transe", "rotate", "complex")


def first_tables(name: str, graph: Graph, device: str) -> Tables:
    keys = [torch.from_numpy(name_keys(names).view(np.int64)) for names in (graph.entities, graph.relations)]
    return Tables.create(MODELS[name](dim=DIM), keys[0], keys[1], 0, device)


def ours(name: str, graph: Graph, device: str, chunk: int = 1) -> Callable[[], float]:
    """A function that trains some steps (whole epochs on a GPU) and gives triples per second."""
    tables = first_tables(name, graph, device)
    trainer = Trainer(batch_size=BATCH, negatives=NEGATIVES, chunk=chunk, lr=1e-4)
    training = Training(trainer, tables, Corpus.of({"2": graph}, 0, device))
    if device == "cpu":
        training.counts = training.counts[:BATCHES]
    training.run(0, 2)  # compiles, and captures
    epochs = EPOCHS if device == "cuda" else 1
    first = count(2, epochs)

    def measure() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        training.run(next(first), epochs)
        if device == "cuda":
            torch.cuda.synchronize()
        return 2 * sum(training.counts) * epochs / (time.perf_counter() - start)

    return measure


def apart(name: str, who: str) -> dict[str, float]:
    """Triples per second and gigabytes of ours in a process of its own."""
    asked = [sys.executable, __file__, "--model", name, "--alone", who]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(name: str, graph: Graph, folder: Path, turns: int) -> dict[str, object]:
    before = load()
    memory = apart(name, "ours")["gb"]
    with pykeen("train", name, folder, "--dim", DIM) as beside:
        our = ours(name, graph, "cpu")
        beside.turn()
        pairs = [(our(), beside.turn()) for _ in range(turns)]
    theirs = pairs[-1][1]["gb"]
    return {
        "name": f"train-{name}",
        **told("ours_per_s", [one for one, _ in pairs]),
        **told("pykeen_per_s", [other["per_s"] for _, other in pairs]),
        **told("ratio", [one / other["per_s"] for one, other in pairs], 1),
        "turns": turns,
        **before,
        "ours_gb": round(memory, 2),
        "pykeen_gb": round(theirs, 2),
        "memory_ratio": round(memory / theirs, 3),
    }


def share(
    name: str, graph: Graph, device: str, folder: Path, turns: int, precision: str
) -> dict[str, object]:
    """Shared negatives beside own ones."""
    before = load()
    torch.set_float32_matmul_precision(precision)
    row = name if precision == PRECISIONS[0] else f"{name}-{precision}"
    own, shared = (ours(name, graph, device, chunk) for chunk in (1, CHUNK))
    speeds = [(own(), shared()) for _ in range(turns)]
    found: dict[str, object] = {
        "name": f"{'gpu-' if device == 'cuda' else ''}shared-{row}",
        **told("ratio", [b / a for a, b in speeds], 2),
        **told("own_per_s", [a for a, _ in speeds]),
        **told("shared_per_s", [b for _, b in speeds]),
        "turns": turns,
        **before,
    }
    if device == "cpu":
        every = {who: apart(name, who)["gb"] for who in ("ours", "shared")}
        with pykeen("train", name, folder, "--dim", DIM) as beside:
            theirs = [beside.turn() for _ in range(turns + 1)][1:]
        found |= told("pykeen_per_s", [one["per_s"] for one in theirs])
        every["pykeen"] = theirs[-1]["gb"]
        found |= {f"{who}_gb": round(gb, 2) for who, gb in every.items()}
    return found


def alone(name: str, graph: Graph, who: str) -> dict[str, float]:
    """What `apart` asks a process of its own for."""
    made = ours(name, graph, "cpu", CHUNK if who == "shared" else 1)
    return {"per_s": statistics.median(made() for _ in range(3)), "gb": own_peak()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", action="append", choices=sorted(MODELS_MEASURED))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--shared", action="store_true", help="measure shared negatives beside own ones")
    parser.add_argument("--precision", default=PRECISIONS[0], choices=PRECISIONS, help="of shared products")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--alone", choices=("ours", "shared"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.precision != PRECISIONS[0] and not (asked.shared and asked.device == "cuda"):
        parser.error("--precision: products of shared negatives on a CUDA device have one")
    if "FEDKGE_DATA" not in os.environ:
        sys.exit("set FEDKGE_DATA to the folder that holds fb15k-237-C3")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    folder = Path(os.environ["FEDKGE_DATA"]) / "fb15k-237-C3" / "2"
    graph = read_graph(folder)
    for name in asked.model or MODELS_MEASURED:
        if asked.alone:
            print(json.dumps(alone(name, graph, asked.alone)))
        elif asked.shared:
            found = share(name, graph, asked.device, folder, asked.turns, asked.precision)
            print(json.dumps(found), flush=True)
        elif asked.device == "cuda":
            measure = ours(name, graph, "cuda")
            speeds = told("ours_per_s", [measure() for _ in range(asked.turns)])
            print(json.dumps({"name": f"gpu-train-{name}", **speeds, "turns": asked.turns}), flush=True)
        else:
            print(json.dumps(compare(name, graph, folder, asked.turns)), flush=True)


if __name__ == "__main__":
    main()
