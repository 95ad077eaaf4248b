"""Whether a commit is as fast as an older one: both measure the same thing in turns, many times.

    FEDKGE_DATA=... python benchmarks/same_speed.py --old dbf2ed2 [--device cuda] [--turns 9] [--only stacked]

Each commit has one process, which keeps what it measures with; only one of the two works at a time. A line
has the median time of both, the median ratio new / old over the turns, and the spread of the ratio: half of
the range between its quartiles. Times are of a training step (`train-*`, `private-*`), of a round's
training with all sites stacked (`stacked`), of what a round takes besides training, ranking and checkpoints
(`overhead*`), and of a whole round of a thousand small sites (`thousand-sites`).
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
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NAMES = (
    *(f"train-{model}" for model in ("transe", "rotate", "complex")),
    "stacked",
    *(f"overhead{of}" for of in ("", "-feds", "-fedternary", "-fedlu")),
    "thousand-sites",
    *(f"private-{of}" for of in ("wide", "paper", "sgd")),
)


def measure(name: str, device: str, home: Path) -> Callable[[], float]:
    """A function that gives seconds, or seconds per triple; runs in a process of the commit."""
    from importlib.util import find_spec

    import torch

    import federation
    import private
    import train

    new = find_spec("fedkge.runs") is not None
    kind, _, of = name.partition("-")
    data, on = Path(os.environ["FEDKGE_DATA"]), torch.device(device)
    if kind == "train":
        from fedkge.graphs.files import read_graph

        speed = train.ours(of, read_graph(data / "fb15k-237-C3" / "2"), device)
        return lambda: 1 / speed()
    if kind == "private":
        return _private(private, of, device, data, home)
    if name == "thousand-sites":
        return lambda: _printed(lambda: federation.thousand_sites(on), "thousand-sites")["seconds"]
    graphs = _graphs(federation, new)
    if name == "stacked":
        config = {**federation.R10, "trainer": {**federation.R10["trainer"], "epochs": 1}}
        run = federation.federated(config, graphs, home / "stacked", on, federation.WAYS["stacked"])
        federation.sweep(run, 1)
        rounds = iter(range(2, 1000))
        return lambda: federation.sweep(run, next(rounds))
    return _overhead(federation, of or "fedep", graphs, on, home, new)


def _graphs(federation: Any, new: bool) -> Any:
    if new:
        from fedkge.runs.data import load
        from fedkge.runs.experiment import Experiment

        return load(Experiment.parse(federation.R10)).named
    from fedkge.runtimes.experiment import Experiment as Older  # type: ignore[import-not-found]

    return Older.parse(federation.R10).load()


def _overhead(
    federation: Any, method: str, graphs: Any, on: Any, home: Path, new: bool
) -> Callable[[], float]:
    """Seconds of exchange in a round, without the first, which announces rows; little training, all rows."""
    if new:
        from fedkge.runs.experiment import Experiment
        from fedkge.runs.folder import RunFolder
        from fedkge.runtimes.run import run
    else:
        from fedkge.runtimes.experiment import Experiment
        from fedkge.runtimes.folder import RunFolder  # type: ignore[import-not-found]
        from fedkge.runtimes.inprocess import run  # type: ignore[import-not-found]
    config = {
        **federation.R10,
        "rounds": 6,
        "method": {"name": method},
        "evaluate": {"every": 6, "patience": 0},
    }
    config["trainer"] = {**config["trainer"], "epochs": 1, "negatives": 4, "batch_size": 8192}
    one, number = Experiment.parse(config), iter(range(1000))
    few = list(graphs.items()) if on.type == "cuda" else list(graphs.items())[:5]
    graphs = {site: replace(graph, valid=graph.valid[:100], test=graph.test[:100]) for site, graph in few}

    def once() -> float:
        where = home / f"{method}-{next(number)}"
        run(one, RunFolder.create(where, one, False), on, graphs)
        events = map(json.loads, (where / "run.jsonl").read_text().splitlines())
        spent = [event["exchange_seconds"] for event in events if "exchange_seconds" in event]
        return statistics.median(spent[1:-1])

    return once


def _private(private: Any, of: str, device: str, data: Path, home: Path) -> Callable[[], float]:
    from fedkge.graphs.files import read_graph
    from fedkge.graphs.marks import mark_share

    home.mkdir(exist_ok=True)
    if of == "sgd":
        return private.strict(private.DESCENT, private.random_graph(100_000), device, home)
    graph = mark_share({"all": read_graph(data / "fb15k-237")}, 0.5, 0)["all"]
    return private.strict(private.settings(device)[of], graph, device, home)


def _printed(work: Callable[[], None], name: str) -> Any:
    """What a benchmark reports under a name."""
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as out:
        work()
    lines = [json.loads(line) for line in out.getvalue().splitlines() if line.startswith("{")]
    return next(line for line in lines if line["name"] == name)


def work(device: str) -> None:
    """The process of one commit: names in, times out."""
    import warnings

    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    known: dict[str, Callable[[], float]] = {}
    with tempfile.TemporaryDirectory() as home:
        for line in sys.stdin:
            name = line.strip()
            if name not in known:
                known.clear()  # memory of what was measured before
                known[name] = measure(name, device, Path(home))
                known[name]()
            answers.write(f"{known[name]()}\n")
            answers.flush()


class Side:
    """A commit, checked out, and its process."""

    def __init__(self, commit: str, where: Path, device: str) -> None:
        root = HERE.parent
        if Path(commit).is_dir():
            tree = Path(commit).resolve()
        else:
            tree = where
            tree.mkdir()
            archive = subprocess.run(
                ["git", "-C", str(root), "archive", commit], check=True, capture_output=True
            )
            subprocess.run(["tar", "x", "-C", str(tree)], input=archive.stdout, check=True)
        places = os.pathsep.join((str(tree / "src"), str(tree / "benchmarks")))
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "same_speed.py"), "--work", "--device", device],
            env={**os.environ, "PYTHONPATH": places},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, name: str) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--old", default="dbf2ed2")
    parser.add_argument("--new", default=".")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        sys.path.pop(0)  # this file's folder: benchmarks are those of the commit
        work(asked.device)
        return
    with tempfile.TemporaryDirectory() as folder:
        old, new = (
            Side(c, Path(folder) / n, asked.device) for n, c in (("old", asked.old), ("new", asked.new))
        )
        for name in NAMES:
            if asked.only and not any(part == name or part in name.split("-") for part in asked.only):
                continue
            began, times = time.perf_counter(), []
            for turn in range(asked.turns):
                pair = {side: side(name) for side in ((old, new) if turn % 2 else (new, old))}
                times.append((pair[old], pair[new]))
            ratios = [after / before for before, after in times]
            low, _, high = statistics.quantiles(ratios, n=4)
            print(
                f"{name:20} old {statistics.median(a for a, _ in times):.4g}  "
                f"new {statistics.median(b for _, b in times):.4g}  ratio {statistics.median(ratios):.3f}  "
                f"spread {(high - low) / 2:.3f}  ({asked.turns} turns, {time.perf_counter() - began:.0f} s)",
                flush=True,
            )
        for side in (old, new):
            assert side.process.stdin is not None
            side.process.stdin.close()
            side.process.wait()


if __name__ == "__main__":
    main()
