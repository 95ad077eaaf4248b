"""One large site: how fast it is indexed, trained, ranked and asked; one JSON line per number of entities.

    python benchmarks/scale.py [--device cuda] [--entities 5000000] [--triples 20000000] [--dim 64]

The graph is made up: 500 relations, ends drawn by a power law (the k-th entity as often as k^-0.75). TransE
trains with row-wise Adam, batches of 1024, 256 negatives shared by 128. Smaller numbers of entities, with 4
triples each, show what a step costs as a table grows. Memory is the process's peak, on a GPU the device's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from fedkge.evaluation.filter import Known
from fedkge.evaluation.ranking import rank
from fedkge.graphs.graph import Axis, Graph, Ids, Names
from fedkge.models import MODELS, Side, Tables
from fedkge.training import Corpus, Trainer, Training
from fedkge.training.loop import one_thread

RELATIONS, POWER, STEPS, TURNS = 500, 0.75, 100, 7


def made_up(entities: int, triples: int) -> Ids:
    """Distinct triples, at most as many as asked for."""
    random = np.random.default_rng(0)

    def ends() -> Ids:
        drawn: Ids = (entities * random.random(triples) ** (1 / (1 - POWER))).astype(np.int64)
        return drawn

    columns = (ends(), random.integers(0, RELATIONS, triples), ends()[::-1])
    codes = np.unique((columns[0] * RELATIONS + columns[1]) * entities + columns[2])
    pairs, tails = np.divmod(random.permutation(codes), entities)
    heads, relations = np.divmod(pairs, RELATIONS)
    return np.stack((heads, relations, tails), 1)


def peak(device: str) -> float:
    """Gigabytes."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(entities: int, triples: int, dim: int, device: str, ranked: int) -> dict[str, object]:
    """What a step costs; where triples are to be ranked, the rest too."""
    train = made_up(entities, triples)
    names = Names(["?"] * entities), Names([str(i) for i in range(RELATIONS)], Axis.RELATION)
    start = clock(device)
    corpus = Corpus.of({"site": Graph(*names, train)}, 0, device)
    indexed = clock(device) - start
    model = MODELS["transe"](dim=dim)
    tables = Tables.create(model, torch.arange(entities), torch.arange(RELATIONS), 0, device)
    trainer = Trainer(batch_size=1024, negatives=256, chunk=128, optimizer="row-adam", sides="tail")
    training = Training(trainer, tables, corpus)
    training.counts = training.counts[:STEPS]
    training._shuffle(0)
    training._shuffle = lambda epoch: training.clock[0].fill_(0)  # the same triples: only steps are measured
    spent = []
    with one_thread():
        training._epoch(0)  # compiles, and captures at the second time
        training._epoch(0)
        for _ in range(TURNS):
            start = clock(device)
            training._epoch(0)
            spent.append((clock(device) - start) / len(training.counts))
    step = statistics.median(spent)
    found: dict[str, object] = {
        "name": f"{'gpu-' if device == 'cuda' else ''}scale-{entities}",
        "triples": len(train),
        "dim": dim,
        "step_ms": round(1000 * step, 3),
        "triples_per_s": round(1024 / step),
        "index_s": round(indexed, 2),
        "gb": round(peak(device), 2),
    }
    return found | (asked(tables, train[:ranked], train, device) if ranked else {})


def asked(tables: Tables, some: Ids, train: Ids, device: str) -> dict[str, object]:
    """Ranking of training triples, filtered as ever, and the answers of one question."""
    known = Known.of(train, len(tables.entities), RELATIONS)
    start = clock(device)
    rank(tables, some, known)
    ranked = clock(device) - start
    spent = []
    for h, r, _ in torch.from_numpy(train[:20]).to(tables.device):
        start = clock(device)
        tables.all_scores(h[None], r[None], Side.TAIL).topk(10)
        spent.append(clock(device) - start)
    return {
        "ranked": len(some),
        "rank_s": round(ranked, 2),
        "answer_ms": round(1000 * statistics.median(spent), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--entities", type=int, default=5_000_000)
    parser.add_argument("--triples", type=int, default=20_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--ranked", type=int, default=10_000, help="triples to rank in the largest graph")
    parser.add_argument("--alone", action="store_true", help="no smaller numbers of entities")
    told = parser.parse_args()
    growing = [n for n in (10_000, 100_000, 1_000_000) if n < told.entities and not told.alone]
    for entities in growing:
        few = min(told.triples, max(4 * entities, STEPS * 1024 * 2))
        print(json.dumps(measure(entities, few, told.dim, told.device, 0)), flush=True)
    print(json.dumps(measure(told.entities, told.triples, told.dim, told.device, told.ranked)), flush=True)


if __name__ == "__main__":
    main()
