"""What privacy costs: Hits@10 over ε on FB15k-237, half confidential, with TransE; docs/frontier.md from it.

    FEDKGE_DATA=... python benchmarks/frontier.py --out runs/frontier --device cuda --seeds 0,1,2,3,4 [--tune]
    python benchmarks/frontier.py --out runs/frontier

The first trains the variants of examples/fedkge-fb15k237-transe-privacy.toml at several ε and seeds, what
matters most first, and with --tune the settings that they were chosen from instead; runs that are whole are
skipped. It needs torch, numpy and the kernels of its device, no accountant: noise is given (`NOISE`). The
second reads the runs, counts ε from their ledgers, and writes docs/frontier.json and docs/frontier.md. The
plot: `fedkge report runs/frontier/*/seed*`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from fedkge.config import override, read_toml, variant
from fedkge.errors import DataError, FedkgeError
from fedkge.nodes.ledgers import run_entries
from fedkge.privacy import costs
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import Simulation, run
from frontier_page import Row, page

ROOT = Path(__file__).parent.parent
PRESET = "fedkge-fb15k237-transe-privacy.toml"  #: a variant for each mode
TUNE = "tune"  #: the folder of runs that settings are chosen by
NOISE = {
    ("strict", 10.0): 2.979,
    ("strict", 4.0): 6.413,
    ("strict", 2.0): 11.88,
    ("fulldp", 10.0): 2.188,
    ("fulldp", 2.0): 8.447,
}  #: preset and ε -> the least noise multiplier that keeps all steps within it, rounded up


@dataclass(frozen=True)
class Point:
    """A preset with some options."""

    preset: str
    options: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "-".join(
            (self.preset, *(f"{key.split('.')[1]}{value:g}" for key, value in self.options.items()))
        )

    def config(self, presets: Path, seed: int) -> dict[str, Any]:
        """The preset at a seed, with the noise instead of the ε that it is for: no accountant is asked."""
        given = [f"{key}={value}" for key, value in {"seed": seed, **self.options}.items()]
        plain = override(variant(read_toml(presets / PRESET), self.preset), given)
        if "epsilon" in plain["privacy"]:
            plain["privacy"]["noise"] = NOISE[self.preset, plain["privacy"].pop("epsilon")]
        return plain

    def of_preset(self, presets: Path) -> bool:
        """Whether its options are the preset's own."""
        return self.config(presets, 0) == Point(self.preset).config(presets, 0)


POINTS = (
    Point("u-only"),
    Point("strict"),
    Point("strict", {"privacy.epsilon": 4.0, "privacy.lr": 1e-2}),
    Point("strict", {"privacy.epsilon": 2.0, "privacy.lr": 5e-3}),
    Point("off"),
    Point("paper"),
    Point("fulldp"),
    Point("fulldp", {"privacy.epsilon": 2.0, "privacy.lr": 5e-3}),
    *(Point("paper", {"privacy.noise": noise}) for noise in (1.0, 1.3, 10.0)),
)
TUNING = (
    *(Point("u-only", {"trainer.lr": lr}) for lr in (3e-4, 5e-4, 1e-3, 2e-3, 3e-3, 5e-3)),
    *(
        Point("strict", {"privacy.lr": lr, "privacy.clip": clip})
        for lr, clip in product((5e-3, 1e-2, 1.5e-2, 2e-2, 3e-2), (0.1, 0.3, 1.0))
    ),
)


# Runs


RESULTS = Simulation(tables=False)  #: tables and checkpoints need safetensors


@dataclass(frozen=True)
class Job:
    """A run that is to be made."""

    folder: Path
    config: dict[str, Any]


def jobs(points: Sequence[Point], out: Path, presets: Path, seeds: Sequence[int]) -> Iterator[Job]:
    """What is not there yet, all seeds of a point before the next point."""
    for point, seed in product(points, seeds):
        folder = out / point.name / f"seed{seed}"
        if not folder.exists():
            yield Job(folder, point.config(presets, seed))
        elif not (folder / "summary.json").exists():
            raise DataError(
                f"{folder}: a run that has not ended and is not this program's; delete or move it"
            )


def train(job: Job, device: str) -> tuple[bool, str]:
    """Whether it went well, and a line about it. A folder gets its name when it is whole."""
    started, named = time.perf_counter(), f"{job.folder.parent.name} {job.folder.name}"
    draft = job.folder.with_name(f".{job.folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        experiment = Experiment.parse(job.config)
        folder = RunFolder.create(draft, experiment, resume=False)
        summary = run(experiment, folder, torch.device(device), how=RESULTS)
    except FedkgeError as error:
        return False, f"{named}: {error}"
    draft.rename(job.folder)
    hits = ", ".join(
        f"{split} {100 * summary['metrics'][split]['hits@10']:.2f} %" for split in ("valid", "test")
    )
    return True, f"{named}: {time.perf_counter() - started:.0f} s, Hits@10 {hits}"


def train_all(todo: Sequence[Job], device: str, lanes: int) -> bool:
    """Some at a time, each lane a process; a line as each ends. Whether all went well."""
    well = True
    with ProcessPoolExecutor(lanes, mp_context=get_context("spawn")) as pool:
        runs = [pool.submit(train, job, device) for job in todo]
        for number, done in enumerate(as_completed(runs), 1):
            good, line = done.result()
            print(f"[{number}/{len(todo)}] {line}", flush=True)
            well &= good
    return well


# Results


def summary_of(path: Path, point: Point, presets: Path) -> dict[str, Any]:
    """What a run came to. Where no accountant was when it was made, its ledger is counted now, and kept."""
    folder = RunFolder.open(path)
    experiment, summary = folder.experiment(), folder.summary()
    if _without_price(experiment) != _without_price(Experiment.parse(point.config(presets, experiment.seed))):
        asked = f"variant {point.preset} of {PRESET} with {dict(point.options)}"
        raise DataError(f"{path}: its options are not those of {asked}; move it away and run it again")
    privacy = experiment.privacy
    if privacy.noisy and not summary["privacy"]:
        assert privacy.delta is not None, "with noise there is a delta"
        counted = costs(run_entries(path), privacy.delta, privacy.accountant)
        summary["privacy"] = [cost.plain() for cost in counted]
        folder.write_summary(summary)
    return summary


def _without_price(experiment: Experiment) -> dict[str, Any]:
    """All options but ε and noise, of which one follows from the other."""
    plain = experiment.config()
    return plain | {"privacy": plain["privacy"] | {"epsilon": None, "noise": None}}


def measured(points: Sequence[Point], out: Path, presets: Path) -> list[Row]:
    """One row for each point that has runs, with the largest ε over seeds."""
    rows: list[Row] = []
    for point in points:
        paths = sorted((out / point.name).glob("seed*/summary.json"))
        if not paths:
            continue
        found = [summary_of(path.parent, point, presets) for path in paths]
        spent: Row = max(
            (one for each in found for one in each["privacy"]), key=lambda one: one["epsilon"], default={}
        )
        told = ("epsilon", "delta", "guarantee", "accountant", "mechanism")
        rows.append(
            {
                "preset": point.preset,
                "options": dict(point.options),
                "of_preset": point.of_preset(presets),
                **{name: spent.get(name) for name in told},
                "seeds": [each["seed"] for each in found],
                "devices": sorted({each["environment"]["device"] for each in found}),
                **{f"{split}_{metric}": [each["metrics"][split][metric] for each in found]
                   for split in ("valid", "test") for metric in ("hits@10", "mrr")},
            }
        )  # fmt: skip
    return rows


def write(out: Path, presets: Path, docs: Path) -> None:
    """The page, from what is in `out`; of points or tuning that are not there, what was known is kept."""
    found = {"points": measured(POINTS, out, presets), "tuning": measured(TUNING, out / TUNE, presets)}
    if not any(found.values()):
        raise DataError(
            f"{out}: no run of this program has ended there; expected folders such as u-only/seed0"
        )
    results = docs / "frontier.json"
    kept = json.loads(results.read_text()) if results.exists() else {}
    known = {name: rows or kept.get(name, []) for name, rows in found.items()}
    results.write_text(json.dumps(known, indent=1) + "\n")
    (docs / "frontier.md").write_text(page(**known))
    print(page(**known))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="where the runs are kept")
    parser.add_argument("--device", help="cpu or cuda: train; without it, only write what runs came to")
    parser.add_argument("--seeds", default="0,1,2", help="to train, with commas; --tune has 0 alone")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--only", default="", help="presets to train, with commas; none: all")
    parser.add_argument("--tune", action="store_true", help="train the settings that presets are chosen from")
    parser.add_argument("--presets", type=Path, default=ROOT / "examples", help="folder of the presets")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the page is written")
    asked = parser.parse_args(arguments)
    try:
        if asked.device is None:
            write(asked.out, asked.presets, asked.docs)
            return
        points, out, seeds = (
            (TUNING, asked.out / TUNE, "0") if asked.tune else (POINTS, asked.out, asked.seeds)
        )
        chosen = [point for point in points if not asked.only or point.preset in asked.only.split(",")]
        todo = list(jobs(chosen, out, asked.presets, [int(seed) for seed in seeds.split(",")]))
        if not train_all(todo, asked.device, asked.jobs):
            sys.exit(1)
    except FedkgeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
