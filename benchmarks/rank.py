"""How fast a site's test triples are ranked, beside PyKEEN's evaluator: one JSON line per model.

    FEDKGE_DATA=... python benchmarks/rank.py --model transe --model rotate --model complex

Both rank heads and tails, filtered, with random rows on the CPU, taking turns. We rank every test triple.
PyKEEN runs in a process of its own, as its users run it (pykeen_alone.py), and ranks the first
`pykeen_triples` of them, with batches of 32 (its own choice on a CPU) or of 256, whichever is faster; its
seconds are scaled to all triples. Its RotatE takes another norm than ours (see `fedkge.exports.moduli`) and
is measured as it comes. The others must agree with us on the MRR of some triples, which is not timed.
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

import torch

from fedkge.evaluation import Known, metrics, rank
from fedkge.exports import to_pykeen
from fedkge.graphs.files import read_graph
from fedkge.graphs.graph import Graph, Ids
from fedkge.models import MODELS, Tables
from turns import TURNS, load, pykeen, told

PYKEEN_TRIPLES = {"transe": 256, "rotate": 64, "complex": 1024}
CHECKED = 32  #: triples on which both must agree


def ours(tables: Tables, graph: Graph, triples: Ids) -> tuple[float, float]:
    """Seconds with the index of known triples and the metrics, and the MRR."""
    start = time.perf_counter()
    mrr = metrics(rank(tables, triples, Known.from_graph(graph)))["mrr"]
    return time.perf_counter() - start, mrr


def check(name: str, tables: Tables, graph: Graph) -> None:
    """PyKEEN's evaluator, on the same rows, finds the same MRR."""
    from pykeen.evaluation import RankBasedEvaluator

    known = [torch.from_numpy(split) for split in graph.splits().values()]
    some = graph.test[:CHECKED]
    found = RankBasedEvaluator().evaluate(
        to_pykeen(tables, graph), torch.from_numpy(some), additional_filter_triples=known, use_tqdm=False
    )
    mrr = found.get_metric("both.realistic.inverse_harmonic_mean_rank")
    if abs(mrr - ours(tables, graph, some)[1]) > 1e-3 * mrr:
        sys.exit(f"{name}: PyKEEN finds an MRR of {mrr}, we do not")


def measure(name: str, graph: Graph, folder: Path, dim: int, limit: int, turns: int) -> dict[str, object]:
    before = load()
    keys = torch.arange(graph.n_entities), torch.arange(graph.n_relations)
    tables = Tables.create(MODELS[name](dim=dim), *keys, seed=0)
    ours(tables, graph, graph.test[:8])  # compiles
    with pykeen("rank", name, folder, "--dim", dim, "--triples", limit) as beside:
        beside.turn()  # chooses the batch
        pairs = [(ours(tables, graph, graph.test)[0], beside.turn()) for _ in range(turns)]
    if name != "rotate":
        check(name, tables, graph)
    theirs = [len(graph.test) / other["per_s"] for _, other in pairs]
    return {
        "name": f"rank-{name}",
        **told("ours_s", [one for one, _ in pairs], 2),
        **told("pykeen_s", theirs, 1),
        **told("ratio", [other / one for (one, _), other in zip(pairs, theirs, strict=True)], 1),
        "turns": turns,
        **before,
        "triples": len(graph.test),
        "entities": graph.n_entities,
        "dim": dim,
        "pykeen_triples": limit,
        "pykeen_batch": int(pairs[-1][1]["batch"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", action="append", choices=sorted(PYKEEN_TRIPLES))
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--site", type=Path, help="folder of a site (FB15k-237-C3's site 2 in FEDKGE_DATA)")
    parser.add_argument("--pykeen-triples", type=int, help="how many triples PyKEEN ranks")
    parser.add_argument("--turns", type=int, default=TURNS)
    asked = parser.parse_args()
    if asked.site is None and "FEDKGE_DATA" not in os.environ:
        sys.exit("set FEDKGE_DATA to the folder that holds fb15k-237-C3, or name a site with --site")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    folder = asked.site or Path(os.environ["FEDKGE_DATA"]) / "fb15k-237-C3" / "2"
    graph = read_graph(folder)
    for name in asked.model or PYKEEN_TRIPLES:
        limit = asked.pykeen_triples or PYKEEN_TRIPLES[name]
        line = measure(name, graph, folder, asked.dim, limit, asked.turns)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
