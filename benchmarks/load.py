"""How fast a large TSV becomes an indexed graph, and the memory that takes: one JSON line.

    python benchmarks/load.py --triples 10000000

Names look like `entity/1234567`; there are 0.15 entities per triple and 500 relations. One triple in
1,000 stands twice, so that dropping duplicates is part of the measurement.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

RELATIONS = 500
CHUNK = 250_000


def generate(path: Path, triples: int) -> None:
    random = np.random.default_rng(0)
    entities = max(2, triples * 15 // 100)
    with path.open("w", encoding="utf-8") as stream:
        for start in range(0, triples, CHUNK):
            n = min(CHUNK, triples - start)
            columns = [random.integers(0, high, n) for high in (entities, RELATIONS, entities)]
            repeat = np.arange(n // 1000)
            for column in columns:
                column[n - len(repeat) :] = column[repeat]
            rows = zip(*(column.tolist() for column in columns), strict=True)
            stream.writelines(f"entity/{h}\trelation/{r}\tentity/{t}\n" for h, r, t in rows)


def measure(path: Path, triples: int) -> dict[str, object]:
    from fedkge.errors import DataWarning
    from fedkge.graphs.files import read_graph

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        start, cpu_start = time.perf_counter(), time.process_time()
        graph = read_graph(path)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9  # Linux counts KiB
    return {
        "name": "load",
        "triples_per_s": round(triples / seconds),
        "peak_gb": round(peak, 3),
        "triples": triples,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "kept": len(graph.train),
        "entities": graph.n_entities,
        "relations": graph.n_relations,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--triples", type=int, default=10_000_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)  # the fresh process
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.triples)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.tsv"
        generate(path, arguments.triples)
        fresh = [sys.executable, __file__, "--triples", str(arguments.triples), "--measure", str(path)]
        subprocess.run(fresh, check=True)


if __name__ == "__main__":
    main()
