"""What privacy costs on examples/hospital, at triple and at person level: test metrics over ε.

    python benchmarks/hospital.py --out runs/hospital-privacy --lanes 4 [--rounds 60] [--seeds 3]

The tables of examples/hospital/make_tables.py become a federation as the mappings there say, divided once, at
random over all triples; one validation at the end, so that nothing is chosen. Prints a table.
"""

from __future__ import annotations

import argparse
import csv
import json
import sqlite3
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numba
import torch

from fedkge.graphs.indexing import graph_from_names
from fedkge.graphs.marks import mark_relations
from fedkge.graphs.split import split
from fedkge.graphs.writing import write_federation
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import Simulation, run

CARE = "https://care.example/"
SECRET = [CARE + name for name in ("diagnosedWith", "takes", "examinedBy")]
PATIENTS = [f"{CARE}{name}/patient/" for name in ("north", "south")]
MAKE = Path(__file__).parent.parent / "examples" / "hospital" / "make_tables.py"
EPSILONS = (8.0, 4.0, 2.0)
MODES: dict[str, dict[str, Any]] = {
    "off": {"privacy": {"mode": "off"}},
    "u-only": {"privacy": {"mode": "u-only"}},
    **{
        f"triple-{epsilon:g}": {"privacy": {"mode": "strict", "epsilon": epsilon, "delta": 1e-5}}
        for epsilon in EPSILONS
    },
    **{
        f"person-{epsilon:g}": {
            "privacy": {
                "mode": "strict",
                "unit": "entity",
                "epsilon": epsilon,
                "delta": 1e-4,
                "batch_size": 60,
            },
            "persons": {"prefixes": PATIENTS, "mentions": True},  # codes of diagnoses and drugs are public
        }
        for epsilon in EPSILONS
    },
}


def statements(tables: Path, name: str) -> Iterator[tuple[str, str, str]]:
    """What hospital.r2rml.ttl makes of a hospital's tables; ages are literals, and left out."""
    patient = f"{CARE}{name}/patient/{{}}"
    with sqlite3.connect(tables / f"{name}.sqlite") as found:
        for number, ward, physician in found.execute("SELECT id, ward, physician FROM patient"):
            yield patient.format(number), f"{CARE}admittedTo", f"{CARE}{name}/ward/{ward}"
            yield patient.format(number), f"{CARE}treatedBy", f"{CARE}{name}/physician/{physician}"
        for query, relation, kind in (
            ("SELECT patient, code FROM diagnosis", "diagnosedWith", "diagnosis"),
            ("SELECT patient, drug FROM prescription", "takes", "drug"),
            ("SELECT patient, test FROM examination", "examinedBy", "test"),
        ):
            for number, what in found.execute(query):
                yield patient.format(number), CARE + relation, f"{CARE}{kind}/{what}"
    found.close()


def pharmacy(tables: Path) -> Iterator[tuple[str, str, str]]:
    """What pharmacy.rml.ttl makes of drugs.csv."""
    with (tables / "drugs.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            drug = f"{CARE}drug/{row['drug']}"
            yield drug, f"{CARE}ofClass", f"{CARE}class/{row['class']}"
            yield drug, f"{CARE}givenFor", f"{CARE}diagnosis/{row['diagnosis']}"
            yield drug, f"{CARE}madeBy", f"{CARE}maker/{row['maker']}"


def federation(out: Path) -> Path:
    """The folder of the three sites, divided and marked."""
    at = out / "sites"
    if not at.is_dir():
        subprocess.run([sys.executable, str(MAKE), str(out / "tables")], check=True)
        tables = out / "tables"
        named = {name: list(dict.fromkeys(statements(tables, name))) for name in ("north", "south")}
        named["pharmacy"] = list(dict.fromkeys(pharmacy(tables)))
        divided = {name: split(graph_from_names(rows), (8, 1, 1), 0) for name, rows in named.items()}
        write_federation(mark_relations(divided, SECRET), at)
    return at


def train(job: tuple[str, int, Path, Path, int]) -> tuple[str, dict[str, Any]]:
    """One run, alone in its process: its test metrics by site, and what it has spent."""
    mode, seed, data, out, rounds = job
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    plain = {
        "seed": seed,
        "rounds": rounds,
        "data": {"path": str(data)},
        "model": {"name": "transe", "dim": 64, "margin": 8.0},
        "trainer": {"epochs": 3, "batch_size": 128, "negatives": 32, "lr": 3e-3},
        "method": {"name": "fedep"},
        "evaluate": {"every": rounds, "patience": 0},
        "account": {"folder": str(out / "accounts" / f"{mode}-{seed}")},  # each run is published alone
        **MODES[mode],
    }
    experiment = Experiment.parse(plain)
    with catch_warnings():
        simplefilter("ignore")
        folder = RunFolder.create(out / f"{mode}-{seed}", experiment, resume=False)
        summary = run(experiment, folder, torch.device("cpu"), how=Simulation(tables=False))
    found = {site: of["metrics"]["test"] for site, of in summary["sites"].items()}
    return mode, {
        "seed": seed,
        "rounds": rounds,
        "all": summary["metrics"]["test"],
        "privacy": summary["privacy"],
        **found,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default=",".join(MODES), help="modes, with commas")
    asked = parser.parse_args(arguments)
    data = federation(asked.out.resolve())
    modes = [mode for mode in MODES if mode in asked.only.split(",")]
    todo = [(m, s, data, asked.out.resolve(), asked.rounds) for s in range(asked.seeds) for m in modes]
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
    with ProcessPoolExecutor(asked.lanes, mp_context=get_context("spawn")) as pool:
        for mode, one in pool.map(train, todo):
            found[mode].append(one)
            print(f"{mode} seed {one['seed']}: test MRR {one['all']['mrr']:.4f}", flush=True)
            (asked.out / "results.json").write_text(json.dumps(found, indent=1))
    print("| mode | ε | test Hits@10, all | north | south | pharmacy | seeds |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for mode, runs in found.items():
        spent = max((cost["epsilon"] for one in runs for cost in one["privacy"]), default=None)
        cells = [_cell([100 * one[site]["hits@10"] for one in runs]) for site in ("all", *SITES)]
        print(f"| {mode} | {'' if spent is None else f'{spent:.2f}'} | {' | '.join(cells)} | {len(runs)} |")


SITES = ("north", "south", "pharmacy")


def _cell(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


if __name__ == "__main__":
    main()
