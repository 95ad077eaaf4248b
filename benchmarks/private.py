"""What privacy costs: a strict step beside a plain one, for triples and persons, and beside Opacus's.

    FEDKGE_DATA=... python benchmarks/private.py [--device cuda] [--opacus PYTHON]

FB15k-237, half of it confidential, TransE. `wide` has dim 256, batches of 1024 and 256 negatives with Adam;
`paper` has DPKGE's settings, dim 50, batches of sqrt(N) and one negative. A plain step trains on an
unrestricted batch, a strict one on a Poisson sample of the same size in the mean; both are taken in one
process, in turns, and what a turn writes to its ledger, once, is divided among its steps. `sgd` is plain
gradient descent at 100,000 entities. `persons` is a strict step on persons of 8 triples each, made up at
random, beside one on as many triples, in the settings of `wide` and of `paper`. Prints JSON lines.

Opacus is measured by a Python that has it (`--opacus`, which needs torch and opacus alone), on the same
batch, with its per-sample gradients of embedding tables; where these do not fit into memory, that is what it
says.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fedkge.graphs.files import read_graph
from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.graphs.marks import mark_share
from fedkge.models import MODELS, Tables
from fedkge.privacy import Ledger, Privacy, Spending
from fedkge.randomness import name_keys
from fedkge.training import Corpus, Trainer, Training
from fedkge.training.cadence import Cadence
from fedkge.training.confidential import unmarked
from fedkge.training.private import PrivateTraining, Protection
from fedkge.training.secret import Secret

TURNS = 7
OPACUS = Path(__file__).with_name("private_opacus.py")
STRICT = Privacy("strict", noise=1.0, delta=1e-6, accountant="rdp")
PERSONS = Privacy("strict", "entity", noise=1.0, delta=1e-6, accountant="rdp", per_person=8)


@dataclass(frozen=True)
class Setting:
    """A model and a batch."""

    dim: int
    batch_size: int
    negatives: int
    steps: int  #: that one turn takes
    optimizer: str = "adam"
    loss: str = "self-adversarial"

    @property
    def trainer(self) -> Trainer:
        return Trainer(
            batch_size=self.batch_size,
            negatives=self.negatives,
            optimizer=self.optimizer,
            loss=self.loss,
            sides="tail",
        )


DESCENT = Setting(64, 512, 64, 200, optimizer="sgd")


def settings(device: str) -> dict[str, Setting]:
    """A CPU is given few steps, which are slow there; a GPU nearly an epoch's, with one line of ledger."""
    wide, paper = (120, 240) if device == "cuda" else (6, 60)
    return {"wide": Setting(256, 1024, 256, wide), "paper": Setting(50, 521, 1, paper, loss="margin")}


def first_tables(setting: Setting, graph: Graph, device: str) -> Tables:
    keys = [torch.from_numpy(name_keys(names).view(np.int64)) for names in (graph.entities, graph.relations)]
    return Tables.create(MODELS["transe"](dim=setting.dim), keys[0], keys[1], 0, device)


def plain(setting: Setting, graph: Graph, device: str) -> Callable[[], float]:
    """A function that takes some plain steps and gives seconds per step."""
    corpus = Corpus.of({"all": unmarked(graph, STRICT)}, 0, device)
    training = Training(setting.trainer, first_tables(setting, graph, device), corpus)
    assert len(training.counts) >= setting.steps, "an epoch has the steps that are timed"
    training.counts = training.counts[: setting.steps]
    return timed(training, setting.steps, device)


def strict(
    setting: Setting, graph: Graph, device: str, folder: Path, persons: bool = False
) -> Callable[[], float]:
    """The same of strict steps alone: every triple is taken for confidential that is."""
    marks = graph.confidential
    assert marks is not None
    count, owner = int(marks.sum()), None
    trainer, units, privacy = setting.trainer, count, PERSONS if persons else STRICT
    if each := privacy.per_person:
        units = -(-count // each)
        owner = np.full(len(marks), -1)
        owner[marks] = np.random.default_rng(0).permutation(count) // each
        trainer = replace(trainer, batch_size=max(1, trainer.batch_size // each))
    cadence = Cadence.of(trainer, privacy, units)
    spending = Spending(Ledger(folder / f"{len(list(folder.iterdir()))}.jsonl"), "all")
    own = (owner, units if persons else 0)
    protection = Protection(privacy, marks, 1.0, cadence, Secret(os.urandom(32)), spending, *own)
    tables = first_tables(setting, graph, device)
    training = PrivateTraining(setting.trainer, tables, ("all", graph), 0, protection)
    training.counts = []
    object.__setattr__(cadence, "steps", setting.steps)
    return timed(training, setting.steps, device)


def timed(training: Training, steps: int, device: str) -> Callable[[], float]:
    training.run(0, 2)  # compiles, and captures
    epoch = iter(range(2, 1000))

    def measure() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        training.run(next(epoch), 1)
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps

    return measure


def in_turns(*measures: Callable[[], float]) -> list[float]:
    """The median of each."""
    times = [[measure() for measure in measures] for _ in range(TURNS)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def steps(graph: Graph, device: str) -> dict[str, float]:
    """Strict beside plain, by setting; seconds of a strict step by setting."""
    found = {}
    for name, setting in settings(device).items():
        with tempfile.TemporaryDirectory() as folder:
            pair = plain(setting, graph, device), strict(setting, graph, device, Path(folder))
            before, after = in_turns(*pair)
        found[name] = after
        report(f"private-{name}", device, plain_ms=before * 1e3, strict_ms=after * 1e3, ratio=after / before)
    return found


def random_graph(entities: int) -> Graph:
    """As many triples, whatever the number of entities; half of them are confidential."""
    random = np.random.default_rng(0)
    train = random.integers(0, [entities, 10, entities], (220_000, 3))
    names = Names([str(i) for i in range(entities)]), Names([str(i) for i in range(10)], Axis.RELATION)
    return Graph(*names, train, confidential=random.random(len(train)) < 0.5)


def descent(device: str) -> None:
    """Strict beside plain gradient descent."""
    graph = random_graph(100_000)
    with tempfile.TemporaryDirectory() as folder:
        pair = plain(DESCENT, graph, device), strict(DESCENT, graph, device, Path(folder))
        before, after = in_turns(*pair)
    report("private-sgd", device, plain_ms=before * 1e3, strict_ms=after * 1e3, ratio=after / before)


def persons(graph: Graph, device: str) -> None:
    """Steps on persons beside steps on as many triples."""
    for name, setting in settings(device).items():
        with tempfile.TemporaryDirectory() as folder:
            by = [strict(setting, graph, device, Path(folder), persons) for persons in (False, True)]
            triples, people = in_turns(*by)
        found = {"triples_ms": triples * 1e3, "persons_ms": people * 1e3}
        report(f"private-persons-{name}", device, **found, ratio=people / triples)


def beside_opacus(python: str, device: str, ours: dict[str, float], graph: Graph) -> None:
    for name, setting in settings(device).items():
        sizes = (graph.n_entities, graph.n_relations, setting.dim, setting.batch_size, setting.negatives)
        command = [python, str(OPACUS), device, *map(str, sizes)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [""])[-1]
            last = f"killed by signal {-done.returncode}" if done.returncode < 0 else last
            report(f"private-opacus-{name}", device, strict_ms=ours[name] * 1e3, opacus=last)
            continue
        seconds = json.loads(done.stdout)["seconds"]
        report(
            f"private-opacus-{name}",
            device,
            strict_ms=ours[name] * 1e3,
            opacus_ms=seconds * 1e3,
            ratio=seconds / ours[name],
        )


def report(name: str, device: str, **found: float | str) -> None:
    """Print what was found, to three digits."""
    values = {key: float(f"{v:.3g}") if isinstance(v, float) else v for key, v in found.items()}
    print(json.dumps({"name": f"{'gpu-' * (device == 'cuda')}{name}", **values}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--opacus", help="a Python that has torch and opacus")
    options = parser.parse_args()
    data = os.environ.get("FEDKGE_DATA")
    if data is None:
        sys.exit("FEDKGE_DATA: expected the folder that holds fb15k-237")
    graph = mark_share({"all": read_graph(Path(data) / "fb15k-237")}, 0.5, 0)["all"]
    ours = steps(graph, options.device)
    descent(options.device)
    persons(graph, options.device)
    if options.opacus:
        beside_opacus(options.opacus, options.device, ours, graph)


if __name__ == "__main__":
    main()
