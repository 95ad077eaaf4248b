"""What privacy costs at triple and at person level: FB15k-237, half confidential, dealt to made-up persons.

    FEDKGE_DATA=... python benchmarks/persons.py --out runs/persons --device cuda --lanes 8 [--search]
    python benchmarks/persons.py --out runs/persons

The first trains every point with its seeds, one line of JSON per run; what is there is skipped. The second
prints a table, and what the search on valid has spent. A person is a group of confidential triples, dealt
out at random: FB15k-237 has no persons of its own whose triples are confidential. Noise is given, as an
accountant has found it (`NOISE`). The part of all units that a step is on, and the number of steps, are the
same for triples and for persons, and so is the noise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedkge.evaluation import Known, metrics, rank
from fedkge.graphs.datasets import load
from fedkge.graphs.graph import Graph
from fedkge.graphs.marks import mark_share
from fedkge.graphs.subgraph import in_name_order
from fedkge.models import MODELS, Tables
from fedkge.privacy import Ledger, Privacy, Spending
from fedkge.randomness import name_keys
from fedkge.training import Corpus, Trainer, Training
from fedkge.training.cadence import Cadence
from fedkge.training.confidential import unmarked
from fedkge.training.private import PrivateTraining, Protection
from fedkge.training.secret import Secret

SHARE, DELTA, BATCH = 0.5, 1e-6, 65536
#: epochs of confidential steps, part of the confidential in a step, ε -> noise multiplier (PLD, rounded up)
NOISE = {
    (60, 0.48, 10.0): 2.979,
    (60, 0.48, 4.0): 6.413,
    (60, 0.48, 2.0): 11.88,
    (20, 0.48, 10.0): 1.84,
    (10, 0.48, 10.0): 1.403,
    (30, 1.0, 10.0): 2.967,
    (15, 1.0, 10.0): 2.098,
}


@dataclass(frozen=True)
class Point:
    """How one model is trained."""

    name: str
    mode: str  #: off, u-only or strict
    epsilon: float = 0.0
    each: int = 1  #: triples of a person; 1: the unit is a triple
    before: int = 0  #: epochs on unrestricted triples alone, first
    epochs: int = 60
    clip: float = 0.3
    lr: float = 1.5e-2  #: of confidential steps
    whole: bool = False  #: every confidential step is on all confidential triples
    seeds: int = 1

    @property
    def noise(self) -> float:
        return NOISE[self.epochs, 1.0 if self.whole else 0.48, self.epsilon]


POINTS = (
    Point("u-only", "u-only", seeds=5),
    Point("triple-10", "strict", 10.0, seeds=5),
    Point("person8-10", "strict", 10.0, 8, clip=1.0, seeds=3),
    Point("person32-10", "strict", 10.0, 32, clip=2.0, seeds=3),
    Point("off", "off", seeds=2),
    Point("triple-4", "strict", 4.0, lr=1e-2, seeds=2),
    Point("triple-2", "strict", 2.0, lr=5e-3, seeds=2),
    Point("person8-4", "strict", 4.0, 8, clip=1.0, lr=1e-2, seeds=2),
    Point("person8-2", "strict", 2.0, 8, clip=1.0, lr=5e-3, seeds=2),
)
SEARCH = (
    Point("search-before40", "strict", 10.0, before=40, epochs=20),
    Point("search-before60", "strict", 10.0, before=60, epochs=20),
    Point("search-before60-10", "strict", 10.0, before=60, epochs=10),
    Point("search-whole30", "strict", 10.0, before=30, epochs=30, whole=True),
    Point("search-whole15", "strict", 10.0, before=45, epochs=15, whole=True, lr=3e-2),
    Point("search-before60-lr2", "strict", 10.0, before=60, epochs=20, lr=2.5e-2),
    Point("search-u-only90", "u-only", epochs=90),
)  #: one seed each, compared on valid


# Training


def graph_of(seed: int) -> Graph:
    ((_, whole),) = load("fb15k-237").items()
    return in_name_order(mark_share({"all": whole}, SHARE, seed)["all"])


def trainer() -> Trainer:
    return Trainer(batch_size=521, negatives=32, lr=1e-3, sides="alternate")


def trained(point: Point, graph: Graph, seed: int, device: str) -> tuple[Tables, int]:
    """The tables, and how many confidential steps there were."""
    keys = [torch.from_numpy(name_keys(names).view(np.int64)) for names in (graph.entities, graph.relations)]
    model = MODELS["transe"](dim=100, margin=9.0, norm=1)
    tables = Tables.create(model, keys[0], keys[1], seed, device)
    open_graph = unmarked(graph, Privacy("u-only"))
    if point.mode != "strict":
        chosen = graph if point.mode == "off" else open_graph
        Training(trainer(), tables, Corpus.of({"all": chosen}, seed, device)).run(0, point.epochs)
        return tables, 0
    if point.before:
        Training(trainer(), tables, Corpus.of({"all": open_graph}, seed, device)).run(0, point.before)
    with tempfile.TemporaryDirectory() as folder:
        private = _protection(point, graph, Path(folder) / "ledger.jsonl")
        training = PrivateTraining(trainer(), tables, ("all", graph), seed, private)
        training.run(point.before, point.epochs)
        return tables, private.spending.ledger.count("all")


def _protection(point: Point, graph: Graph, ledger: Path) -> Protection:
    marks = graph.confidential
    assert marks is not None
    count = int(marks.sum())
    units, owner = -(-count // point.each), None
    size = units if point.whole else BATCH // point.each
    unit = {"unit": "entity", "per_person": point.each} if point.each > 1 else {}
    given = {"noise": point.noise, "delta": DELTA, "clip": point.clip, "batch_size": size, "lr": point.lr}
    privacy = Privacy("strict", **unit, **given)  # type: ignore[arg-type]
    if point.each > 1:
        owner = np.full(len(marks), -1, np.int64)
        owner[marks] = np.random.default_rng(0).permutation(count) // point.each
    cadence = Cadence.of(trainer(), privacy, units)
    spending = Spending(Ledger(ledger), "all", None, units)
    own = (owner, units if point.each > 1 else 0)
    return Protection(privacy, marks, point.noise, cadence, Secret(os.urandom(32)), spending, *own)


def train(point: Point, seed: int, device: str) -> dict[str, Any]:
    began = time.perf_counter()
    graph = graph_of(seed)
    tables, steps = trained(point, graph, seed, device)
    seconds, known = time.perf_counter() - began, Known.from_graph(graph)
    found = {
        f"{split}_{name}": metrics(rank(tables, graph.split(split), known))[name]
        for split in ("valid", "test")
        for name in ("hits@10", "mrr")
    }
    return {"point": asdict(point), "seed": seed, "steps": steps, "seconds": seconds, **found}


# Many, side by side


def jobs(out: Path, points: Sequence[Point]) -> Iterator[tuple[Point, int]]:
    """What is not there yet; the first seeds of all points before the others."""
    for seed in range(max(point.seeds for point in points)):
        for point in points:
            if seed < point.seeds and not (out / f"{point.name}-{seed}.json").exists():
                yield point, seed


def train_all(out: Path, points: Sequence[Point], device: str, lanes: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    with ProcessPoolExecutor(lanes, mp_context=get_context("spawn")) as pool:
        todo = {pool.submit(train, point, seed, device): (point, seed) for point, seed in jobs(out, points)}
        for done in as_completed(todo):
            point, seed = todo[done]
            try:
                found = done.result()
            except Exception as error:  # one that fails does not stop the others
                print(f"{point.name} {seed}: {error!r}", flush=True)
                continue
            (out / f"{point.name}-{seed}.json").write_text(json.dumps(found))
            hits = ", ".join(f"{split} {100 * found[f'{split}_hits@10']:.2f}" for split in ("valid", "test"))
            at = time.perf_counter() - began
            print(f"[{at:4.0f} s] {point.name} seed {seed}: {hits} ({found['seconds']:.0f} s)", flush=True)


def table(out: Path, points: Sequence[Point]) -> None:
    print("| point | ε | triples of a unit | valid Hits@10 | test Hits@10 | test MRR | seeds |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for point in points:
        found = [json.loads(path.read_text()) for path in sorted(out.glob(f"{point.name}-[0-9].json"))]
        if not found:
            continue
        cells = []
        for name in ("valid_hits@10", "test_hits@10", "test_mrr"):
            values = [100 * one[name] for one in found]
            spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.2f}{spread}")
        print(f"| {point.name} | {point.epsilon:g} | {point.each} | {' | '.join(cells)} | {len(found)} |")


def spent_by_search(out: Path) -> float:
    """What looking for settings has spent: all searched runs that used confidential triples, together."""
    from fedkge.privacy.accountants import Rdp

    releases = []
    for path in sorted(out.glob("search-*-0.json")):
        one = json.loads(path.read_text())
        point = Point(**one["point"])
        if one["steps"]:
            rate = 1.0 if point.whole else BATCH / (272_115 * SHARE)
            privacy = Privacy("strict", noise=point.noise, delta=DELTA)
            releases.append(privacy.release(point.noise, rate, one["steps"]))
    return Rdp().epsilon(releases, DELTA)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", help="cpu or cuda: train; without it, print what runs came to")
    parser.add_argument("--lanes", type=int, default=1, help="runs at a time")
    parser.add_argument("--only", default="", help="points, with commas; none: all")
    parser.add_argument("--search", action="store_true", help="the settings that were looked at instead")
    parser.add_argument("--seeds", type=int, help="seeds of each point, instead of its own number")
    asked = parser.parse_args()
    points = SEARCH if asked.search else POINTS
    if asked.only:
        points = tuple(p for p in (*POINTS, *SEARCH) if p.name in asked.only.split(","))
    if asked.seeds is not None:
        points = tuple(replace(point, seeds=asked.seeds) for point in points)
    if asked.device is None:
        table(asked.out, (*POINTS, *SEARCH))
        print(f"ε of the search: {spent_by_search(asked.out):.1f} at δ = {DELTA:g}")
        return
    train_all(asked.out, points, asked.device, asked.lanes)


if __name__ == "__main__":
    sys.exit(main())
