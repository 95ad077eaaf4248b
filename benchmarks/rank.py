"""How fast a site's test triples are ranked, beside PyKEEN's evaluator: one JSON line per model.

    FEDKGE_DATA=... python benchmarks/rank.py --model transe --model rotate --model complex

Both rank heads and tails, filtered, with the same random rows on the CPU, in this process, one after the
other. We rank every test triple. PyKEEN ranks the first `pykeen_triples` of them, with batches of 32 (its
own choice on a CPU) and of 256; the faster one counts, scaled to all triples. Its RotatE takes another
norm than ours (see `fedkge.exports.moduli`) and is measured as it comes. The others must agree with us on
the MRR.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from fedkge.evaluation import Known, metrics, rank
from fedkge.exports import to_pykeen
from fedkge.graphs.files import read_graph
from fedkge.graphs.graph import Graph, Ids
from fedkge.models import MODELS, Tables

PYKEEN_TRIPLES = {"transe": 256, "rotate": 256, "complex": 2048}
BATCHES = (32, 256)


def ours(tables: Tables, graph: Graph, triples: Ids) -> tuple[float, float]:
    """Seconds with the index of known triples and the metrics, and the MRR."""
    rank(tables, triples[:8], Known.from_graph(graph))  # compiles
    start = time.perf_counter()
    mrr = metrics(rank(tables, triples, Known.from_graph(graph)))["mrr"]
    return time.perf_counter() - start, mrr


def pykeens(model: Any, graph: Graph, triples: Ids, batch: int) -> tuple[float, float]:
    from pykeen.evaluation import RankBasedEvaluator

    known = [torch.from_numpy(split) for split in graph.splits().values()]
    start = time.perf_counter()
    result = RankBasedEvaluator().evaluate(
        model, torch.from_numpy(triples), additional_filter_triples=known, batch_size=batch, use_tqdm=False
    )
    return time.perf_counter() - start, result.get_metric("both.realistic.inverse_harmonic_mean_rank")


def measure(name: str, graph: Graph, dim: int, limit: int) -> dict[str, object]:
    from pykeen.nn.modules import RotatEInteraction

    keys = torch.arange(graph.n_entities), torch.arange(graph.n_relations)
    tables = Tables.create(MODELS[name](dim=dim), *keys, seed=0)
    ours_s, _ = ours(tables, graph, graph.test)
    model = to_pykeen(tables, graph)
    some = graph.test[:limit]
    if name == "rotate":
        model.interaction = RotatEInteraction()
    seconds = {}
    for batch in BATCHES:
        seconds[batch], mrr = pykeens(model, graph, some, batch)
        if name != "rotate" and abs(mrr - ours(tables, graph, some)[1]) > 1e-3 * mrr:
            sys.exit(f"{name}: PyKEEN finds an MRR of {mrr}, we do not")
    batch = min(seconds, key=lambda size: seconds[size])
    pykeen_s = seconds[batch] * len(graph.test) / len(some)
    return {
        "name": f"rank-{name}",
        "ours_s": round(ours_s, 2),
        "pykeen_s": round(pykeen_s, 1),
        "ratio": round(pykeen_s / ours_s, 1),
        "triples": len(graph.test),
        "entities": graph.n_entities,
        "dim": dim,
        "pykeen_triples": len(some),
        "pykeen_batch": batch,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", action="append", choices=sorted(PYKEEN_TRIPLES))
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--site", type=Path, help="folder of a site (FB15k-237-C3's site 2 in FEDKGE_DATA)")
    parser.add_argument("--pykeen-triples", type=int, help="how many triples PyKEEN ranks")
    asked = parser.parse_args()
    if asked.site is None and "FEDKGE_DATA" not in os.environ:
        sys.exit("set FEDKGE_DATA to the folder that holds fb15k-237-C3, or name a site with --site")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    graph = read_graph(asked.site or Path(os.environ["FEDKGE_DATA"]) / "fb15k-237-C3" / "2")
    for name in asked.model or PYKEEN_TRIPLES:
        line = measure(name, graph, asked.dim, asked.pykeen_triples or PYKEEN_TRIPLES[name])
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
