"""Unlearning beside re-training, from a preset: what is forgotten and kept, who can tell, how long it takes.

    python benchmarks/unlearning.py examples/PRESET.toml OUT --variant fedlu --forget data/fb15k-237-C3

trains the raw run, re-trains it without the forgotten triples (mode exact), unlearns them in modes target and
paper, and writes OUT/results.json. Options add Table 3's ablation, ten small requests in a row, and a site's
withdrawal. Everything is timed in one process, after the raw run has warmed it up.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedkge.audits.asked import Questions
from fedkge.audits.standing import standing, withdrawn
from fedkge.audits.telling import membership
from fedkge.config import build, override, read_toml, variant
from fedkge.methods.unlearn import Unlearn
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runs.holdings import Holdings
from fedkge.runs.requests import Erasure, Request
from fedkge.runtimes.run import run
from fedkge.runtimes.unlearning import Unlearned, unlearn
from fedkge.training.interference import Confusion

PRINTED = 1e-4  #: the paper's learning rate, whatever the raw run was trained with
ABLATION = {"without hard": Confusion(hard=0.0), "without soft": Confusion(soft=0.0)}


class Bench:
    """One raw run, and everything that is tried with it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.out, self.device = options.out, torch.device(options.device)
        self.raw = self._raw(variant(read_toml(options.config), options.variant), options.set)
        self.requests = {
            site: Request.read(site, next((options.forget / site).glob("forget.*")), "triples")
            for site in self.raw.sources.named
        }
        self.held: dict[str, Any] = {}  # the tables of runs that were compared so far
        self.found: dict[str, Any] = {"config": options.config.name, "set": options.set}
        took = {"seconds": self.raw.summary["seconds"], "rounds": self.raw.summary["rounds"]}
        self.note("raw", took | {"round": _round(self.raw.folder.journal.path)})

    def _raw(self, config: Mapping[str, Any], changes: Sequence[str]) -> Holdings:
        experiment = Experiment.parse(override(dict(config), changes))
        run(experiment, RunFolder.create(self.out / "raw", experiment, False), self.device)
        return Holdings.open(self.out / "raw")

    def note(self, name: str, what: Any) -> None:
        self.found[name] = what
        (self.out / "results.json").write_text(json.dumps(self.found, indent=1))
        print(name, json.dumps(what)[:300], flush=True)

    def unlearned(
        self, name: str, how: Unlearn, old: Holdings | None = None, erasure: Any = None
    ) -> Unlearned:
        held = old or self.raw
        asked = erasure or Erasure.of(held.sources.named, self.requests.values())
        return unlearn(held, self.out / name, asked, how, self.device)

    def compare(self, names: Mapping[str, Unlearn]) -> None:
        """Re-training and unlearning of the whole forget sets; may be called again with more."""
        erasure, held = Erasure.of(self.raw.sources.named, self.requests.values()), self.held
        for name, how in names.items():
            done = self.unlearned(name, how, erasure=erasure)
            one = Holdings.open(done.folder.path)
            self.note(f"{name} took", {"seconds": done.seconds, "rounds": one.summary["rounds"]})
            self.note(f"{name} did", done.sites)
            asked = Questions.of(erasure, one)
            if not held:
                held["raw"] = asked.tables(self.raw, self.device)
                self.note("raw stands", _brief(standing(asked, held["raw"])))
            held[name] = asked.tables(one, self.device)
            self.note(f"{name} stands", _brief(standing(asked, held[name])))
            if "exact" in held and name != "exact":
                rows = membership(asked, held[name], held["exact"], held["raw"])
                self.note(f"{name} membership", [{k: v for k, v in r.items() if k != "curve"} for r in rows])

    def profile(self, at: Path) -> None:
        """Where the time of mode target goes, by function."""
        profiler = cProfile.Profile()
        profiler.enable()
        self.unlearned("profiled", Unlearn())
        profiler.disable()
        with at.open("w") as file:
            pstats.Stats(profiler, stream=file).sort_stats("cumulative").print_stats(120)

    def small_ones(self, count: int, yardstick: float, name: str = "", how: Unlearn = Unlearn()) -> None:  # noqa: B008 - frozen
        """Ten requests in a row, of a tenth of the forget sets each; noted as they come."""
        label, held, seconds = f"small ones{name and ', '}{name}", self.raw, []
        for number in range(count):
            parts = [replace(r, triples=r.triples[number::count]) for r in self.requests.values()]
            erasure = Erasure.of(held.sources.named, parts)
            done = self.unlearned(f"small-{name}{number}", how, held, erasure)
            held = Holdings.open(done.folder.path)
            seconds.append(done.seconds)
            self.note(label, {"seconds": seconds, "share of exact": sum(seconds) / yardstick})
        whole = Erasure.of(self.raw.sources.named, self.requests.values())
        asked = Questions.of(whole, held)
        self.note(f"{label} stand", _brief(standing(asked, asked.tables(held, self.device))))

    def withdrawal(self, site: str, rounds: int | None) -> None:
        """A site leaves: how the others rank their test triples, and what they know of those of the site."""
        erasure, asked = Erasure.of(self.raw.sources.named, [], [site]), None
        ways = {"left-exact": Unlearn("exact"), "left": Unlearn(rounds=rounds), "raw": None}
        for name, how in ways.items():
            done = None if how is None else self.unlearned(name, how, erasure=erasure)
            one = self.raw if done is None else Holdings.open(done.folder.path)
            asked = asked or Questions.of(erasure, one)
            found = {
                "site": site,
                "seconds": None if done is None else done.seconds,
                "rounds": one.summary["rounds"],
                "stands": _brief(standing(asked, asked.tables(one, self.device))),
                "known": withdrawn(self.raw, one, site, self.device),
            }
            self.note("left-raw" if done is None else name, found)


def _round(journal: Path) -> float | None:
    """Mean seconds of a round with its share of validation; the first two, which compile, are left out."""
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    ends = [event["time"] for event in events if event["event"] == "traffic" and event["round"] > 1]
    return (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else None


def _varied(given: str) -> tuple[str, Unlearn]:
    name, _, changes = given.partition(":")
    return name, build(Unlearn, override({}, changes.split(",")), "")


def _brief(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        view: {
            split: {m: of[m] for m in ("hits@1", "mrr", "count")}
            | {"sites": {s: [v["hits@1"], v["mrr"], v["count"]] for s, v in of["sites"].items()}}
            for split, of in splits.items()
        }
        for view, splits in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--variant", help="of the file, as in fedlu")
    parser.add_argument("--forget", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--ablate", action="store_true", help="Table 3: without hard, without soft confusion")
    parser.add_argument("--small", type=int, default=0, help="so many small requests in a row")
    parser.add_argument("--small-vary", action="append", default=[], help="small requests otherwise, too")
    parser.add_argument("--withdraw", help="a site that leaves")
    parser.add_argument("--withdraw-only", action="store_true", help="nothing else")
    parser.add_argument("--only", help="of exact, target and paper, these")
    parser.add_argument("--vary", action="append", default=[], help="target otherwise: NAME:rounds=6,...")
    parser.add_argument("--profile", type=Path, help="where the time of target went, to this file")
    parser.add_argument("--rounds", type=int, help="rounds after a withdrawal")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(options)
    if not options.withdraw_only:
        names = {
            "exact": Unlearn("exact"),
            "target": Unlearn("target"),
            "paper": Unlearn("paper", lr=PRINTED),
        }
        if options.only:
            names = {name: how for name, how in names.items() if name in options.only.split(",")}
        names |= dict(map(_varied, options.vary))
        if options.ablate:
            names |= {name: Unlearn("paper", lr=PRINTED, confusion=how) for name, how in ABLATION.items()}
        bench.compare(names)
    if options.profile:
        bench.profile(options.profile)
    if options.small:
        took = bench.found.get("exact took", {"seconds": bench.raw.summary["seconds"]["total"]})
        bench.small_ones(options.small, took["seconds"])
        for name, how in map(_varied, options.small_vary):
            bench.small_ones(options.small, took["seconds"], name, how)
    if options.withdraw:
        bench.withdrawal(options.withdraw, options.rounds)
    print("done", file=sys.stderr)


if __name__ == "__main__":
    main()
