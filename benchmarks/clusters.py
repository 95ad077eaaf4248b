"""docs/clusters.md: DPKGE's Table 4 in kind, whether patients of examples/hospital stay in their clusters.

    python benchmarks/clusters.py --out runs/clusters

The paper's data, eICU, needs credentials. Here five seeds of each mode train on the made-up hospitals, every
site alone, and k-means of the patients' rows are compared as the paper does. Minutes on one CPU core. Writes
docs/clusters.json and the page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from clusters_page import page
from fedkge.audits.clustering import agreements, chosen, rows_of
from fedkge.config import override, read_toml
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import run
from hospital import CARE, MAKE, federation

DOCS = Path(__file__).parents[1] / "docs"
PRESET = MAKE.parent / "hospital.toml"
PATIENTS = f"{CARE}admittedTo"  #: every patient is the head of one such triple
SITES = ("north", "south")
SEEDS = 5
KS = (2, 3, 4)
MODES: dict[str, Mapping[str, Any]] = {
    "off": {"mode": "off"},
    "paper": {"mode": "paper", "noise": 0.7, "delta": 1e-5},  # δ only prints ε: the noise is given
    "u-only": {"mode": "u-only"},
    "strict": {"mode": "strict", "epsilon": 8.0, "delta": 1e-5},
}


def experiment(mode: str, seed: int, data: Path, accounts: Path) -> Experiment:
    """The example's options; each site alone, and no round is chosen by validation."""
    plain = override(read_toml(PRESET), [f"seed={seed}", "method.name=single"])
    own = {"path": str(data)}, {"every": plain["rounds"], "patience": 0}, {"folder": str(accounts)}
    parts = dict(zip(("data", "evaluate", "account"), own, strict=True))  # each run is published alone
    return Experiment.parse({**plain, **parts, "privacy": dict(MODES[mode])})


def trained(mode: str, seed: int, data: Path, out: Path) -> RunFolder:
    """The folder of one run, which is made, or gone on with, if it has not ended."""
    at = out / f"{mode}-{seed}"
    if (at / "summary.json").is_file():
        return RunFolder.open(at)
    begun = (at / "config.toml").is_file()
    asked = experiment(mode, seed, data, out / "accounts" / at.name)
    with catch_warnings():
        simplefilter("ignore")
        run(asked, RunFolder.create(at, asked, resume=begun), torch.device("cpu"))
    return RunFolder.open(at)


def compared(runs: Mapping[str, Sequence[RunFolder]], site: str) -> dict[str, Any]:
    """The agreement of clusterings of one hospital's patients, for all pairs of modes."""
    graph = runs["off"][0].data()[site]
    names = chosen(graph, PATIENTS, "head", None)
    models = {mode: [rows(folder, site, names) for folder in of] for mode, of in runs.items()}
    confidential = graph.confidential
    assert confidential is not None, "the example marks its triples"
    return {
        "patients": len(names),
        "train": len(graph.train),
        "confidential": int(confidential.sum()),
        "agreements": [one.plain() for one in agreements(models, KS, SEEDS, 0)],
    }


def rows(folder: RunFolder, site: str, names: Sequence[str]) -> NDArray[np.floating]:
    tables, known, _ = folder.load_site(site)
    return rows_of(names, known, tables.entities.numpy(), str(folder.path))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args(arguments).out.resolve()
    torch.set_num_threads(1)  # the tables are small: threads would wait for each other
    numba.set_num_threads(1)
    data = federation(out)
    runs: dict[str, list[RunFolder]] = {mode: [] for mode in MODES}
    for mode in MODES:
        for seed in range(SEEDS):
            runs[mode].append(trained(mode, seed, data, out))
            print(mode, seed, flush=True)
    kept = {
        "sites": {site: compared(runs, site) for site in SITES},
        "privacy": {mode: spent(of) for mode, of in runs.items()},
        "rounds": read_toml(PRESET)["rounds"],
    }
    (DOCS / "clusters.json").write_text(json.dumps(kept, indent=1) + "\n")
    (DOCS / "clusters.md").write_text(page(kept))


def spent(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """The largest ε of each site over seeds, and what it is printed with."""
    found: dict[str, dict[str, Any]] = {}
    for folder in runs:
        for cost in json.loads((folder.path / "summary.json").read_text())["privacy"]:
            if cost["epsilon"] >= found.get(cost["site"], cost)["epsilon"]:
                found[cost["site"]] = cost
    return list(found.values())


if __name__ == "__main__":
    main()
