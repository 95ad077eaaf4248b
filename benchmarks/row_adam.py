"""What a step of row-wise Adam costs on small and large tables: one JSON line.

TransE in 16 numbers a row, 1024 triples, 256 negatives, on random graphs of as many triples; only the
number of entities differs. Dense Adam's step on both is given beside it.
"""

from __future__ import annotations

import json
import statistics
import time

import numpy as np
import torch

from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.models import MODELS, Tables
from fedkge.training import Corpus, Trainer, Training

WIDTH, STATEMENTS, STEPS = 16, 20 * 1024, 20


def milliseconds(entities: int, optimizer: str) -> float:
    random = np.random.default_rng(0)
    columns = [random.integers(0, high, STATEMENTS) for high in (entities, 10, entities)]
    names = Names(["?"] * entities), Names([str(i) for i in range(10)], Axis.RELATION)  # nobody asks for them
    graph = Graph(*names, np.unique(np.stack(columns, 1), axis=0))
    tables = Tables.create(MODELS["transe"](dim=WIDTH), torch.arange(entities), torch.arange(10), 0)
    trainer = Trainer(batch_size=1024, negatives=256, optimizer=optimizer, sides="tail")
    training = Training(trainer, tables, Corpus.of({"site": graph}, 0))
    training.counts = training.counts[:STEPS]
    training.run(0, 1)
    spent = []
    for epoch in range(1, 6):
        start = time.perf_counter()
        training.run(epoch, 1)
        spent.append((time.perf_counter() - start) / STEPS * 1000)
    return statistics.median(spent)


def main() -> None:
    few, many = 100_000, 10_000_000
    rows = {n: milliseconds(n, "row-adam") for n in (few, many)}
    dense = {n: milliseconds(n, "adam") for n in (few, many)}
    line = {
        "name": "row-adam",
        "width": WIDTH,
        "ms_at_100k": round(rows[few], 2),
        "ms_at_10m": round(rows[many], 2),
        "ratio": round(rows[many] / rows[few], 2),
        "dense_ms_at_100k": round(dense[few], 2),
        "dense_ms_at_10m": round(dense[many], 2),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
