"""What privacy costs at triple and at person level: FB15k-237, half confidential, dealt to made-up persons.

    FEDKGE_DATA=... python benchmarks/persons.py --out runs/persons --device cuda --lanes 8
    python benchmarks/persons.py --out runs/persons

The first trains, what is there is skipped: first the settings that are looked at (`trials`), then every way
with the best of its settings and several seeds; one file of JSON per run. The second prints tables.

Settings are looked for on unrestricted triples alone, half of which stand for confidential ones: no
confidential triple is read, and the search costs no ε. All ways have about as many trials. What is
confidential is the same for all seeds. A person is a group of confidential triples, dealt out at random:
FB15k-237 has no persons of its own whose triples are confidential. Noise is given, as an accountant has found
it (`NOISE`); steps are on the same part of all units, whatever a unit is, so that the noise is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedkge.errors import DataWarning
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

SHARE, DELTA, PAPERS_DELTA = 0.5, 1e-6, 3.6749e-6
#: confidential steps in all, part of the units in a step, ε -> noise multiplier (PLD, rounded up)
NOISE = {
    (120, 0.48, 10.0): 2.969,
    (120, 0.48, 4.0): 6.391,
    (120, 0.48, 2.0): 11.84,
    (40, 0.48, 10.0): 1.834,
    (40, 0.48, 4.0): 3.811,
    (40, 0.48, 2.0): 6.954,
    (20, 0.48, 10.0): 1.399,
    (20, 0.48, 4.0): 2.812,
    (20, 0.48, 2.0): 5.037,
    (30, 1.0, 10.0): 2.966,
    (30, 1.0, 4.0): 6.541,
    (30, 1.0, 2.0): 12.223,
    (15, 1.0, 10.0): 2.097,
    (15, 1.0, 4.0): 4.625,
    (15, 1.0, 2.0): 8.643,
}
#: part of the confidential triples in a step of the paper's -> noise that its accountant calls ε of about 10
PAPERS_NOISE = {0.48: 3.24, 0.06: 1.34}


@dataclass(frozen=True)
class Point:
    """How one model is trained."""

    way: str  #: what is compared: off, u-only, paper, triple-10, person8-10, ...
    mode: str  #: off, u-only, strict or paper
    epsilon: float = 0.0
    each: int = 1  #: triples of a person; 1: the unit is a triple
    before: int = 0  #: epochs on unrestricted triples alone, first
    epochs: int = 60
    dim: int = 100
    rate: float = 1e-3  #: of plain steps
    part: float = 0.48  #: of the units in a confidential step
    clip: float = 0.3
    percentile: float = 20.0  #: the paper's clip
    lr: float = 1.5e-2  #: of confidential steps

    @property
    def noise(self) -> float:
        if self.mode == "paper":
            return PAPERS_NOISE[self.part]
        return NOISE[self.epochs * round(1 / self.part), self.part, self.epsilon]

    @property
    def settings(self) -> str:
        """A name of its settings, for a file."""
        return "-".join(f"{value:g}" for value in asdict(self).values() if not isinstance(value, str))


#: learning rate and percentile of the paper's rules that are tried
PAPERS = ((3e-4, 20.0), (1e-3, 20.0), (2e-3, 20.0), (3e-3, 20.0), (1e-3, 50.0), (3e-3, 50.0))


def trials() -> list[Point]:
    """The settings that are looked at, one seed each."""
    alone, strict, paper = (
        Point("u-only", "u-only"),
        Point("triple-10", "strict", 10.0),
        Point("paper", "paper"),
    )
    found = [replace(strict, lr=lr) for lr in (1e-2, 1.5e-2, 2e-2)]
    found += [replace(strict, before=40, epochs=20, lr=lr) for lr in (1e-2, 2e-2, 3e-2)]
    found += [replace(strict, before=60, epochs=10, lr=lr) for lr in (2e-2, 4e-2)]
    found += [replace(strict, before=45, epochs=15, part=1.0, lr=lr) for lr in (1.5e-2, 3e-2)]
    found += [replace(strict, epochs=30, before=30, part=1.0, lr=lr) for lr in (1.5e-2, 3e-2)]
    found += [replace(strict, before=60, epochs=60, lr=lr) for lr in (1e-2, 1.5e-2)]
    found += [replace(strict, before=before, dim=200) for before in (0, 60)]
    slow = replace(strict, dim=200, rate=5e-4)
    found += [
        replace(slow, before=before, lr=lr)
        for before, lr in ((60, 7e-3), (60, 1e-2), (60, 1.5e-2), (0, 1e-2))
    ]
    found += [replace(slow, before=60, epochs=20, lr=lr) for lr in (1e-2, 2e-2)]
    found += [
        replace(alone, rate=rate, epochs=epochs, dim=dim)
        for rate in (5e-4, 1e-3, 2e-3)
        for epochs, dim in ((60, 100), (120, 100), (60, 200), (120, 200))
    ]
    found += [
        replace(alone, rate=rate, epochs=epochs, dim=dim)
        for rate, dim in ((2.5e-4, 200), (2.5e-4, 300), (5e-4, 300))
        for epochs in (60, 120)
    ]
    found += [
        replace(paper, part=part, rate=rate, percentile=percentile)
        for part in PAPERS_NOISE
        for rate, percentile in PAPERS
    ]
    found += [replace(paper, dim=200, rate=rate, percentile=percentile) for rate, percentile in PAPERS]
    return found


def further(best: Point) -> list[Point]:
    """What is looked at once the best settings of triples at ε = 10 are known."""
    less = [
        replace(best, way=f"triple-{epsilon:g}", epsilon=epsilon, lr=best.lr * part)
        for epsilon in (4.0, 2.0)
        for part in (1.0, 0.6, 0.3)
    ]
    persons = [replace(best, way="person8-10", each=8, clip=clip) for clip in (0.3, 1.0, 2.0)]
    return [*less, *persons]


def ways(chosen: dict[str, Point]) -> list[tuple[Point, int]]:
    """What is compared, and with how many seeds."""
    person = chosen["person8-10"]
    less = [
        replace(person, way=f"person8-{epsilon:g}", epsilon=epsilon, lr=chosen[f"triple-{epsilon:g}"].lr)
        for epsilon in (4.0, 2.0)
    ]
    off = replace(chosen["u-only"], way="off", mode="off")
    five = [chosen[way] for way in ("u-only", "triple-10", "triple-4", "triple-2", "paper") if way in chosen]
    three = [person, *less, replace(person, way="person32-10", each=32, clip=2 * person.clip), off]
    return [*((point, 5) for point in five), *((point, 3) for point in three)]


# Training


@cache
def graph_of(searching: bool) -> Graph:
    """FB15k-237, half of it confidential; or the other half, of which half stands for confidential."""
    ((_, whole),) = load("fb15k-237").items()
    marked = mark_share({"all": whole}, SHARE, 0)["all"]
    if searching:
        marked = mark_share({"all": unmarked(marked, Privacy("u-only"))}, SHARE, 1)["all"]
    return in_name_order(marked)


def trainer(point: Point) -> Trainer:
    return Trainer(batch_size=521, negatives=32, lr=point.rate, sides="alternate")


def trained(point: Point, graph: Graph, seed: int, device: str) -> tuple[Tables, int]:
    """The tables, and how many confidential steps there were."""
    keys = [torch.from_numpy(name_keys(names).view(np.int64)) for names in (graph.entities, graph.relations)]
    model = MODELS["transe"](dim=point.dim, margin=9.0, norm=1)
    tables = Tables.create(model, keys[0], keys[1], seed, device)
    open_graph = unmarked(graph, Privacy("u-only"))
    if point.mode in ("off", "u-only"):
        chosen = graph if point.mode == "off" else open_graph
        Training(trainer(point), tables, Corpus.of({"all": chosen}, seed, device)).run(0, point.epochs)
        return tables, 0
    if point.before:
        Training(trainer(point), tables, Corpus.of({"all": open_graph}, seed, device)).run(0, point.before)
    with tempfile.TemporaryDirectory() as folder:
        private = _protection(point, graph, Path(folder) / "ledger.jsonl")
        training = PrivateTraining(trainer(point), tables, ("all", graph), seed, private)
        training.run(point.before, point.epochs)
        return tables, private.spending.ledger.count("all")


def _protection(point: Point, graph: Graph, ledger: Path) -> Protection:
    marks = graph.confidential
    assert marks is not None
    count = int(marks.sum())
    units, owner = -(-count // point.each), None
    given: dict[str, Any] = {"noise": point.noise, "batch_size": int(point.part * units)}
    if point.mode == "paper":
        given |= {"delta": PAPERS_DELTA, "percentile": point.percentile}
    else:
        given |= {"delta": DELTA, "clip": point.clip, "lr": point.lr}
    if point.each > 1:
        given |= {"unit": "entity", "per_person": point.each}
        owner = np.full(len(marks), -1, np.int64)
        owner[marks] = np.random.default_rng(0).permutation(count) // point.each
    privacy = Privacy(point.mode, **given)
    cadence = Cadence.of(trainer(point), privacy, units)
    spending = Spending(Ledger(ledger), "all", None, units)
    own = (owner, units if point.each > 1 else 0)
    return Protection(privacy, marks, point.noise, cadence, Secret(os.urandom(32)), spending, *own)


def train(point: Point, seed: int, device: str, searching: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DataWarning)
    began = time.perf_counter()
    graph = graph_of(searching)
    tables, steps = trained(point, graph, seed, device)
    seconds, known = time.perf_counter() - began, Known.from_graph(graph)
    found = {
        f"{split}_{name}": value
        for split in (("valid",) if searching else ("valid", "test"))
        for name, value in metrics(rank(tables, graph.split(split), known)).items()
        if name in ("hits@10", "mrr")
    }
    noise = point.noise if steps else 0.0
    return {"point": asdict(point), "seed": seed, "steps": steps, "noise": noise, "seconds": seconds, **found}


# Many, side by side


def train_all(out: Path, todo: Sequence[tuple[Point, int]], device: str, lanes: int, searching: bool) -> None:
    """Each point and seed that is not there yet."""
    out.mkdir(parents=True, exist_ok=True)
    began, kind = time.perf_counter(), "trial" if searching else "run"
    files = {out / f"{kind}-{point.way}-{point.settings}-{seed}.json": (point, seed) for point, seed in todo}
    left = {path: job for path, job in files.items() if not path.exists()}
    with ProcessPoolExecutor(lanes, mp_context=get_context("spawn")) as pool:
        under_way = {pool.submit(train, *job, device, searching): path for path, job in left.items()}
        for done in as_completed(under_way):
            path = under_way[done]
            try:
                found = done.result()
            except Exception as error:  # one that fails does not stop the others
                print(f"{path.stem}: {error!r}", flush=True)
                continue
            path.write_text(json.dumps(found))
            hits = ", ".join(f"{100 * found[name]:.2f}" for name in found if name.endswith("hits@10"))
            at = time.perf_counter() - began
            print(f"[{at:4.0f} s] {path.stem}: {hits} ({found['seconds']:.0f} s)", flush=True)


def read(out: Path, kind: str) -> Iterator[dict[str, Any]]:
    for path in sorted(out.glob(f"{kind}-*.json")):
        yield json.loads(path.read_text())


def best(out: Path) -> dict[str, Point]:
    """Of each way the settings with the most Hits@10 on valid."""
    found: dict[str, dict[str, Any]] = {}
    for one in read(out, "trial"):
        way = one["point"]["way"]
        if way not in found or one["valid_hits@10"] > found[way]["valid_hits@10"]:
            found[way] = one
    return {way: Point(**one["point"]) for way, one in found.items()}


def table(out: Path) -> None:
    """Of the settings that were chosen."""
    by_way: dict[str, list[dict[str, Any]]] = {}
    chosen = {point for point, _ in ways(best(out))}
    for one in read(out, "run"):
        if Point(**one["point"]) not in chosen:
            continue
        by_way.setdefault(one["point"]["way"], []).append(one)
    print("| way | settings | test Hits@10 | test MRR | seeds |\n|---|---|---:|---:|---:|")
    for way, found in by_way.items():
        cells = []
        for name in ("test_hits@10", "test_mrr"):
            values = [100 * one[name] for one in found]
            spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.2f}{spread}")
        print(f"| {way} | {Point(**found[0]['point']).settings} | {' | '.join(cells)} | {len(found)} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", help="cpu or cuda: train; without it, print what runs came to")
    parser.add_argument("--lanes", type=int, default=1, help="runs at a time")
    asked = parser.parse_args()
    if asked.device is None:
        table(asked.out)
        return
    how = (asked.device, asked.lanes)
    train_all(asked.out, [(point, 0) for point in trials()], *how, searching=True)
    again = further(best(asked.out)["triple-10"])
    train_all(asked.out, [(point, 0) for point in again], *how, searching=True)
    todo = ways(best(asked.out))
    in_turn = [(point, seed) for seed in range(5) for point, seeds in todo if seed < seeds]
    train_all(asked.out, in_turn, *how, searching=False)


if __name__ == "__main__":
    sys.exit(main())
