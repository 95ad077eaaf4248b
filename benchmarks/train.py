"""How fast a site trains, beside PyKEEN's training loop: one JSON line per model.

    FEDKGE_DATA=... python benchmarks/train.py --model transe --model rotate --model complex

Both train FB15k-237-C3's site 2 with batches of 1024 triples, 256 negatives each, dim 256 and Adam over
whole tables, in this process, taking turns; a triple counts once with its 256 negatives. PyKEEN's loss is
its self-adversarial one (NSSALoss), its negatives are not filtered (ours are), its RotatE and ComplEx are its
own. Memory is each one's own process's peak, the imports included. On a CUDA device only we are measured.

`--shared` measures negatives that 128 positives share beside own negatives, in turns in this process, and
PyKEEN afterwards in a process of its own, with all threads, as its users run it.
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
from pathlib import Path

import numpy as np
import torch

from fedkge.graphs.files import read_graph
from fedkge.graphs.graph import Graph
from fedkge.machine import SETTINGS, THREADS
from fedkge.models import MODELS, Tables
from fedkge.randomness import name_keys
from fedkge.training import Corpus, Trainer, Training

BATCH, NEGATIVES, DIM, TURNS = 1024, 256, 256, 7
CHUNK = 128  #: positives that share negatives
PYKEENS = {"transe": "TransE", "rotate": "RotatE", "complex": "ComplEx"}


def first_tables(name: str, graph: Graph, device: str) -> Tables:
    keys = [torch.from_numpy(name_keys(names).view(np.int64)) for names in (graph.entities, graph.relations)]
    return Tables.create(MODELS[name](dim=DIM), keys[0], keys[1], 0, device)


def ours(name: str, graph: Graph, device: str, chunk: int = 1) -> Callable[[], float]:
    """A function that trains some steps (a whole epoch on a GPU) and gives triples per second."""
    tables = first_tables(name, graph, device)
    trainer = Trainer(batch_size=BATCH, negatives=NEGATIVES, chunk=chunk, lr=1e-4)
    training = Training(trainer, tables, Corpus.of({"2": graph}, 0, device))
    if device == "cpu":
        training.counts = training.counts[:20]
    training.run(0, 2)  # compiles, and captures
    epoch = iter(range(2, 1000))

    def measure() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        training.run(next(epoch), 1)
        if device == "cuda":
            torch.cuda.synchronize()
        return 2 * sum(training.counts) / (time.perf_counter() - start)

    return measure


def pykeens(name: str, graph: Graph) -> Callable[[], float]:
    """A function that trains two batches of PyKEEN's and gives triples per second."""
    from pykeen.losses import NSSALoss
    from pykeen.models import model_resolver
    from pykeen.sampling import BasicNegativeSampler
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import TriplesFactory

    def factory(triples: np.ndarray) -> TriplesFactory:
        ids = [{name: i for i, name in enumerate(names)} for names in (graph.entities, graph.relations)]
        return TriplesFactory(torch.from_numpy(triples), *ids)

    options = {"scoring_fct_norm": 1} if name == "transe" else {}
    part = factory(graph.train[: 2 * BATCH])
    whole = factory(graph.train)
    model = model_resolver.make(
        PYKEENS[name],
        triples_factory=whole,
        embedding_dim=DIM,
        loss=NSSALoss(margin=9.0),
        random_seed=0,
        **options,
    )
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=part,
        optimizer=torch.optim.Adam(model.get_grad_params(), lr=1e-4),
        negative_sampler=BasicNegativeSampler,
        negative_sampler_kwargs={"num_negs_per_pos": NEGATIVES},
    )

    def measure() -> float:
        start = time.perf_counter()
        loop.train(part, num_epochs=1, batch_size=BATCH, use_tqdm=False, use_tqdm_batch=False)
        return 2 * BATCH / (time.perf_counter() - start)

    return measure


def own_peak() -> float:
    """Gigabytes; of this program alone (getrusage would count the one that started it)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def apart(name: str, who: str) -> dict[str, float]:
    """Triples per second and gigabytes of one in a process of its own; PyKEEN's without our settings."""
    asked = [sys.executable, __file__, "--model", name, "--alone", who]
    dropped = (*SETTINGS, *THREADS) if who == "pykeen" else ()
    around = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(asked, check=True, capture_output=True, text=True, env=around)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(name: str, graph: Graph) -> dict[str, object]:
    our, their = ours(name, graph, "cpu"), pykeens(name, graph)
    their()
    speeds = [(our(), their()) for _ in range(TURNS)]
    ratio = statistics.median(a / b for a, b in speeds)
    memory = {who: apart(name, who)["gb"] for who in ("ours", "pykeen")}
    return {
        "name": f"train-{name}",
        "ours_per_s": round(statistics.median(a for a, _ in speeds)),
        "pykeen_per_s": round(statistics.median(b for _, b in speeds)),
        "ratio": round(ratio, 1),
        "ours_gb": round(memory["ours"], 2),
        "pykeen_gb": round(memory["pykeen"], 2),
        "memory_ratio": round(memory["ours"] / memory["pykeen"], 3),
    }


def share(name: str, graph: Graph, device: str) -> dict[str, object]:
    """Shared negatives beside own ones."""
    own, shared = (ours(name, graph, device, chunk) for chunk in (1, CHUNK))
    speeds = [(own(), shared()) for _ in range(TURNS)]
    found: dict[str, object] = {
        "name": f"{'gpu-' if device == 'cuda' else ''}shared-{name}",
        "ratio": round(statistics.median(b / a for a, b in speeds), 2),
        "own_per_s": round(statistics.median(a for a, _ in speeds)),
        "shared_per_s": round(statistics.median(b for _, b in speeds)),
    }
    if device == "cpu":
        every = {who: apart(name, who) for who in ("ours", "shared", "pykeen")}
        found |= {"pykeen_per_s": round(every["pykeen"]["per_s"])}
        found |= {f"{who}_gb": round(one["gb"], 2) for who, one in every.items()}
    return found


def alone(name: str, graph: Graph, who: str) -> dict[str, float]:
    """What `apart` asks a process of its own for."""
    made = {
        "ours": lambda: ours(name, graph, "cpu"),
        "shared": lambda: ours(name, graph, "cpu", CHUNK),
        "pykeen": lambda: pykeens(name, graph),
    }[who]()
    return {"per_s": statistics.median(made() for _ in range(3)), "gb": own_peak()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", action="append", choices=sorted(PYKEENS))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--shared", action="store_true", help="measure shared negatives beside own ones")
    parser.add_argument("--alone", choices=("ours", "shared", "pykeen"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if "FEDKGE_DATA" not in os.environ:
        sys.exit("set FEDKGE_DATA to the folder that holds fb15k-237-C3")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    graph = read_graph(Path(os.environ["FEDKGE_DATA"]) / "fb15k-237-C3" / "2")
    for name in asked.model or PYKEENS:
        if asked.alone:
            print(json.dumps(alone(name, graph, asked.alone)))
        elif asked.shared:
            print(json.dumps(share(name, graph, asked.device)), flush=True)
        elif asked.device == "cuda":
            measure = ours(name, graph, "cuda")
            speed = statistics.median(measure() for _ in range(TURNS))
            print(json.dumps({"name": f"gpu-train-{name}", "ours_per_s": round(speed)}), flush=True)
        else:
            print(json.dumps(compare(name, graph)), flush=True)


if __name__ == "__main__":
    main()
