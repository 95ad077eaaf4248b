"""How fast the whole test set of FB15k-237 is ranked on a GPU: one JSON line per model."""

from __future__ import annotations

import json
import os
import time
import warnings
from pathlib import Path

import torch

from fedkge.evaluation import Known, metrics, rank
from fedkge.graphs.files import read_graph
from train import first_tables


def main() -> None:
    warnings.simplefilter("ignore")
    graph = read_graph(Path(os.environ["FEDKGE_DATA"]) / "fb15k-237")
    for name in ("transe", "rotate", "complex"):
        tables = first_tables(name, graph, "cuda")
        rank(tables, graph.test[:8], Known.from_graph(graph))  # compiles
        torch.cuda.synchronize()
        start = time.perf_counter()
        mrr = metrics(rank(tables, graph.test, Known.from_graph(graph)))["mrr"]
        seconds = time.perf_counter() - start
        line = {"name": f"gpu-rank-{name}", "ours_s": round(seconds, 3), "triples": len(graph.test)}
        print(json.dumps({**line, "mrr": mrr}), flush=True)


if __name__ == "__main__":
    main()
